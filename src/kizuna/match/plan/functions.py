"""The functions that a plan names: ready ones, and those of people's own modules."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from kizuna.errors import KizunaError, SettingsError
from kizuna.match.matches import MatchFunction
from kizuna.match.plan.reading import nearest


class Functions:
    """Modules are looked for in `folder`, where the plan is, and wherever Python looks. What is not there is a
    SettingsError that tells the place in the plan."""

    def __init__(self, folder: Path, origin: str) -> None:
        self._folder, self._origin = folder, origin

    def match_function(self, name: str, options: Mapping[str, Any] | None, place: str) -> MatchFunction:
        """A ready one, or `package.module:function`."""
        if ":" in name:
            function: MatchFunction = self.imported(name, options, place)
            return function
        from kizuna.match.functions import READY

        if name not in READY:
            raise self._wrong(f"{place}.function", name, f"{nearest(name, READY)} Or write package.module:function")
        return self._made(READY[name], options or {}, place)  # type: ignore[no-any-return]

    def imported(self, name: str, options: Mapping[str, Any] | None, place: str) -> Any:
        """With options, what is named is called with them, and what it returns counts."""
        named = self._imported(name, f"{place}.function")
        return named if options is None else self._made(named, options, place)

    def _imported(self, name: str, place: str) -> Callable[..., Any]:
        module, _, path = name.partition(":")
        if not module or not path:
            raise self._wrong(place, name, "write package.module:function")
        if (folder := str(self._folder)) not in sys.path:
            sys.path.insert(0, folder)
        try:
            named: Any = importlib.import_module(module)
            for part in path.split("."):
                named = getattr(named, part)
        except (ImportError, AttributeError) as error:
            raise self._wrong(place, name, str(error)) from error
        if not callable(named):
            raise self._wrong(place, name, f"that is no function, but {named!r}")
        return named  # type: ignore[no-any-return]

    def _made(self, factory: Callable[..., Any], options: Mapping[str, Any], place: str) -> Any:
        try:
            _check_names(factory, options)
            made = factory(**options)
        except KizunaError as error:
            raise SettingsError(f"{place}.options ({self._origin}): {error}") from error
        if not callable(made):
            raise SettingsError(f"{place}.options ({self._origin}): what it makes is no function, but {made!r}")
        return made

    def _wrong(self, place: str, value: str, problem: str) -> SettingsError:
        return SettingsError(f"{place} = {value!r} ({self._origin}): {problem}")


def _check_names(factory: Callable[..., Any], options: Mapping[str, Any]) -> None:
    """Before it is called, so that an error in its body is not taken for one of the file."""
    signature = inspect.signature(factory)
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in signature.parameters.values())
    for name in () if takes_any else options.keys() - signature.parameters.keys():
        raise SettingsError(f"there is no option {name!r}; {nearest(name, signature.parameters)}")
    try:
        signature.bind(**options)
    except TypeError as error:
        raise SettingsError(str(error)) from error
