"""Functions that users hand over to be called for each piece of work, and how their failures are told."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable
from typing import Any, NamedTuple

from kizuna.errors import WrongValue

# A reason is for people; it is stored with the work, and a message may quote a whole document.
_LONGEST_REASON = 1000


class Failed(Exception):
    """Raised by a handler: this attempt has failed, for this reason. Any other exception says so, too, but is told with
    its type and the line it comes from."""


class Handler(NamedTuple):
    function: Callable[..., Any]
    is_async: bool
    takes_extra: bool
    """Whether it wants to know more than the payload."""


def handler_of(function: Callable[..., Any], extra: str = "") -> Handler:
    """A handler takes the payload, and what is called `extra`, if there is such a thing and it has a parameter of that
    name. WrongValue if it cannot be called like that."""
    called = function if inspect.isroutine(function) else getattr(function, "__call__", function)  # noqa: B004
    is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called)
    return Handler(function, is_async, _takes_extra(function, extra))


def reason_of(error: BaseException) -> str:
    """What went wrong and where, in one line: `ValueError: no such size (images.py:12 in resize)`."""
    what = f"{type(error).__name__}: {' '.join(text_of(error).split())}".removesuffix(": ")
    if len(what) > _LONGEST_REASON:
        what = what[:_LONGEST_REASON] + "…"
    return f"{what} ({_place_of(error)})" if error.__traceback__ else what


def text_of(error: BaseException) -> str:
    """What it says; nothing, if not even that works."""
    try:
        return str(error)
    except Exception:
        return ""


def _takes_extra(function: Callable[..., Any], extra: str) -> bool:
    try:
        signature = inspect.signature(function)
    except ValueError:  # some functions that are written in C do not tell
        return False
    takes_extra = extra in signature.parameters
    try:
        signature.bind("payload", **({extra: None} if takes_extra else {}))
    except TypeError as error:
        function_name = getattr(function, "__qualname__", repr(function))
        expected = f"one that takes the payload{f', and perhaps a parameter `{extra}`' if extra else ''} ({error})"
        raise WrongValue("a handler", f"{function_name}{signature}", expected) from None
    return takes_extra


def _place_of(error: BaseException) -> str:
    *_, (frame, line) = traceback.walk_tb(error.__traceback__)
    code = frame.f_code
    return f"{code.co_filename.rpartition('/')[2]}:{line} in {code.co_name}"
