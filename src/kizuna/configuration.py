"""Finds what is set, and where: code or flag, environment, file, the user's file, default.

Knows how settings are found, not which there are: the structure is an argument. Every level becomes a list
of assignments; all are checked, also those that a higher level outdoes, and all problems are told at once.
"""

from __future__ import annotations

import contextlib
import os
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from msgspec import Struct

from kizuna.errors import SettingsError
from kizuna.sections import Secret, Section, convert, kinds

Structure = TypeVar("Structure", bound=Struct)

FILE = "kizuna.toml"
PREFIX = "KIZUNA_"
CONFIG_VARIABLE = "KIZUNA_CONFIG"
DEFAULT = "default"
TOLD_TO_PROGRAMS = frozenset(
    {
        "KIZUNA_TASK_ID",
        "KIZUNA_TASK_NAME",
        "KIZUNA_TASK_ATTEMPT",
        "KIZUNA_UNIT",
        "KIZUNA_REQUEST_ID",
        "KIZUNA_REQUEST_CALLER",
        "KIZUNA_LOCK",
        "KIZUNA_FENCE",
        "KIZUNA_MATCH_ID",
    }
)
"""What programs that we start find in their environment. These are no settings: such a program may call us."""


class Found(NamedTuple, Generic[Structure]):
    settings: Structure
    origins: dict[str, str]
    """Where each setting comes from, by dotted name."""
    files: tuple[Path, ...]
    """The files that were read, the weightier first."""


class Assignment(NamedTuple):
    """One setting at one level."""

    name: str
    value: object
    origin: str
    is_text: bool = False
    """From a place that has nothing but text, so that "3710" may mean a number."""


class Problems(list[str]):
    @contextlib.contextmanager
    def collecting(self) -> Iterator[None]:
        """Ends the block at the first SettingsError, and keeps what it says."""
        try:
            yield
        except SettingsError as error:
            self.extend(error.problems)


def find(
    structure: type[Structure],
    overrides: Mapping[str, object],
    overrides_from: str,
    config: str | Path | None,
    environ: Mapping[str, str],
    cwd: Path,
) -> Found[Structure]:
    """Raises SettingsError with every problem there is, if there is one."""
    problems = Problems()
    known = known_settings(structure)
    tables = _read_files(config, environ, cwd, problems)
    levels = [
        [Assignment(name, value, overrides_from, isinstance(value, str)) for name, value in flat(overrides)],
        from_environment(environ),
        *([Assignment(name, value, str(path)) for name, value in flat(table)] for path, table in tables.items()),
    ]
    chosen = _choose([_checked(level, known, problems) for level in levels], known, problems)
    _read_secrets(chosen, known, cwd, problems)
    sections = _build_sections(structure, chosen, problems)
    if problems:
        raise SettingsError(*problems)
    origins = {name: chosen[name].origin if name in chosen else DEFAULT for name in known}
    return Found(structure(**sections), origins, tuple(tables))


# names


def known_settings(structure: type[Struct]) -> dict[str, Any]:
    """The type of every setting, by dotted name."""
    sections: dict[str, type[Section]] = kinds(structure)
    return {f"{table}.{name}": kind for table, section in sections.items() for name, kind in kinds(section).items()}


def variable_of(name: str) -> str:
    return PREFIX + name.upper().replace(".", "__")


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The name that was probably meant. One without a section is also compared with the last part of each."""

    def likeness(candidate: str) -> float:
        whole = SequenceMatcher(None, name.lower(), candidate).ratio()
        if "." in name:
            return whole
        return max(whole, SequenceMatcher(None, name.lower(), candidate.rpartition(".")[2]).ratio())

    best = max(known, key=likeness)
    return best if likeness(best) > 0.6 else None


# levels


def flat(tables: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    """`{"store": {"url": …}}` as `("store.url", …)`. An empty table stays, so that its name is checked."""
    for table, entries in tables.items():
        if isinstance(entries, Mapping) and entries:
            yield from ((f"{table}.{name}", value) for name, value in entries.items())
        else:
            yield table, entries


def from_environment(environ: Mapping[str, str]) -> list[Assignment]:
    return [
        Assignment(_name_of(variable), value, f"environment {variable}", is_text=True)
        for variable, value in sorted(environ.items())
        if variable.startswith(PREFIX) and variable not in TOLD_TO_PROGRAMS and variable != CONFIG_VARIABLE
    ]


def _name_of(variable: str) -> str:
    return variable.removeprefix(PREFIX).lower().replace("__", ".")


def _read_files(
    config: str | Path | None, environ: Mapping[str, str], cwd: Path, problems: Problems
) -> dict[Path, dict[str, object]]:
    """The tables of the files that there are, the weightier file first."""
    tables = {}
    for path in _files(config, environ, cwd):
        with problems.collecting():
            tables[path] = read_toml(path)
    return tables


def _files(config: str | Path | None, environ: Mapping[str, str], cwd: Path) -> Iterator[Path]:
    named = config or environ.get(CONFIG_VARIABLE)
    if named or _exists(cwd / FILE):
        yield cwd / (named or FILE)
    folder = _user_config_folder(environ)
    if folder and _exists(folder / "kizuna" / FILE):
        yield folder / "kizuna" / FILE


def _user_config_folder(environ: Mapping[str, str]) -> Path | None:
    # A relative XDG_CONFIG_HOME is to be ignored, says its specification.
    if (folder := Path(environ.get("XDG_CONFIG_HOME", ""))).is_absolute():
        return folder
    return Path(environ["HOME"], ".config") if environ.get("HOME") else None


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except PermissionError:
        # A service often runs under a user who may not enter the folder that HOME still names.
        return False


def read_toml(path: Path) -> dict[str, object]:
    try:
        return tomllib.loads(read_text(path))
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{path}: {error}") from error


def read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError:
        # Not chained: it holds the bytes of the file, which may be a secret.
        raise SettingsError(f"{path} cannot be read: it is not UTF-8") from None


# from levels to settings


def _checked(level: Iterable[Assignment], known: Mapping[str, Any], problems: Problems) -> dict[str, Assignment]:
    """What is right at one level, with the values converted."""
    right = {}
    tables = {name.partition(".")[0] for name in known}
    for name, value, origin, is_text in level:
        if name in tables and value == {}:
            continue
        with problems.collecting():
            if name not in known:
                raise SettingsError(_unknown(name, origin, known, tables))
            converted = convert(value, known[name], name, origin, from_text=is_text)
            right[name] = Assignment(name, converted, origin)
    return right


def _unknown(name: str, origin: str, known: Iterable[str], tables: Iterable[str]) -> str:
    if name in tables:
        return f"{name} ({origin}) is a section; a setting in it is written {name}.<name>"
    meant = nearest(name, known)
    if meant is None:
        return f"{name} ({origin}) is not a setting; `kizuna settings show` lists all there are"
    if origin.startswith("environment"):
        meant = f"{variable_of(meant)} for {meant}"
    return f"{name} ({origin}) is not a setting; did you mean {meant}?"


def _choose(
    levels: Iterable[dict[str, Assignment]], known: Mapping[str, Any], problems: Problems
) -> dict[str, Assignment]:
    """The highest level wins. A secret and its file are one thing: whichever is set above replaces both."""
    chosen: dict[str, Assignment] = {}
    for level in reversed(list(levels)):
        given = {name for name, assignment in level.items() if assignment.value}
        for secret, file in _secrets_with_files(known):
            if {secret, file} <= given:
                problems.append(f"{secret} and {file} are both set ({level[file].origin}); keep one of them")
            if {secret, file} & given:
                chosen.pop(secret, None)
                chosen.pop(file, None)
        chosen |= level
    return chosen


def _secrets_with_files(known: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(name, f"{name}_file") for name, kind in known.items() if kind is Secret and f"{name}_file" in known]


def _read_secrets(chosen: dict[str, Assignment], known: Mapping[str, Any], cwd: Path, problems: Problems) -> None:
    for secret, file in _secrets_with_files(known):
        if file in chosen and chosen[file].value:
            with problems.collecting():
                # os.path's leaves ~ where it stands if there is no such home folder, and then no file is found.
                path = cwd / os.path.expanduser(str(chosen[file].value))  # noqa: PTH111
                text = _read_secret(path, chosen[file]).rstrip("\r\n")
                chosen[secret] = Assignment(secret, Secret(text), f"the file {path}, by {file}")


def _read_secret(path: Path, file: Assignment) -> str:
    try:
        return read_text(path)
    except SettingsError as error:
        raise SettingsError(f"{file.name} ({file.origin}): {error}") from error


def _build_sections(
    structure: type[Struct], chosen: Mapping[str, Assignment], problems: Problems
) -> dict[str, Section]:
    sections = {}
    for table, section in kinds(structure).items():
        names = [name for name in kinds(section) if f"{table}.{name}" in chosen]
        with problems.collecting():
            sections[table] = section(**{name: chosen[f"{table}.{name}"].value for name in names})
    return sections
