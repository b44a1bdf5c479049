"""Options of ready functions: checked against what the factory declares, whether a program gives them or a file."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, ParamSpec, get_type_hints

import msgspec
from msgspec import Meta

from kizuna.errors import WrongValue
from kizuna.match.matches import Match, Waiting
from kizuna.sections import expectation

P = ParamSpec("P")

PureFunction = Callable[[Waiting], Iterable[Match]]
"""A match function that is not async: what it returns follows from what it is given, the time included."""
Inner = PureFunction | str | Mapping[str, Any]
"""A function that another one uses; in a file its name, or a table of `name` and its options."""

Players = Annotated[int, Meta(ge=1, le=500)]
Distance = Annotated[float, Meta(ge=0, le=1e9)]
Arg = Annotated[str, Meta(min_length=1, description="the name of an argument of tickets")]


def with_options(factory: Callable[P, PureFunction]) -> Callable[P, PureFunction]:
    """WrongValue for an option that the factory does not have, or a value that it does not take."""
    signature, hints = inspect.signature(factory), get_type_hints(factory, include_extras=True)

    @functools.wraps(factory)
    def checked(*given: P.args, **options: P.kwargs) -> PureFunction:
        for name in options.keys() - signature.parameters.keys():
            raise WrongValue(
                f"an option of {factory.__name__}", repr(name), " or ".join(signature.parameters) or "none"
            )
        bound = signature.bind(*given, **options)
        for name, value in bound.arguments.items():
            bound.arguments[name] = _converted(f"{name} of {factory.__name__}", value, hints[name])
        return factory(*bound.args, **bound.kwargs)

    return checked


def _converted(name: str, value: Any, kind: Any) -> Any:
    if kind is Inner:
        return function_of(value, name)
    if kind == Mapping[str, Inner]:
        return {pool: function_of(one, name) for pool, one in _checked(name, value, Mapping, "a table").items()}
    if kind == Iterable[Inner]:
        return [function_of(one, name) for one in _checked(name, value, list | tuple, "a list")]
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError:
        raise WrongValue(name, repr(value), expectation(kind)) from None


def _checked(name: str, value: Any, kind: Any, expected: str) -> Any:
    if not isinstance(value, kind):
        raise WrongValue(name, repr(value), f"{expected} of functions")
    return value


def function_of(given: Any, name: str = "function") -> PureFunction:
    """A function as it is; or the ready one of that name, with its options. WrongValue if there is none."""
    from kizuna.match.functions import READY

    if callable(given) and not inspect.iscoroutinefunction(given):
        return given  # type: ignore[no-any-return]
    options = dict(given) if isinstance(given, Mapping) else {"name": given}
    ready = options.pop("name", None)
    if not isinstance(ready, str) or ready not in READY:
        raise WrongValue(name, repr(given), f"a function that is not async, or one of {', '.join(READY)}")
    return READY[ready](**options)
