"""What a backend does, from a file: which players meet, how matches are made of them, and where they are sent."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kizuna.configuration import Problems, read_toml
from kizuna.errors import SettingsError, WrongValue
from kizuna.match.matches import Assigner, Evaluator, MatchFunction
from kizuna.match.plan.assigners import ByProgram, ByTemplate
from kizuna.match.plan.functions import Functions
from kizuna.match.plan.reading import read_table
from kizuna.match.plan.tables import AssignerTable, PlanTable, PoolTable, ProfileTable
from kizuna.match.pools import EVERYONE, DoubleRange, Pool, Profile

if TYPE_CHECKING:
    from kizuna.match.backend import Backend
    from kizuna.match.matchmaking import Matchmaking


@dataclass(frozen=True)
class Planned:
    """A profile, and what makes matches of its players."""

    profile: Profile
    function: MatchFunction
    name: str
    """Of the function, as the plan has it."""
    assigner: Assigner | None = None
    """None: the plan's."""


@dataclass(frozen=True)
class Plan:
    path: Path
    profiles: tuple[Planned, ...]
    assigner: Assigner | None = None
    evaluator: Evaluator | None = None
    population: dict[str, Any] | None = None
    """As it is written: a simulation reads it, and a backend does not."""

    @classmethod
    def load(cls, path: str | Path) -> Plan:
        """SettingsError, with every problem that there is and its place, if it cannot be read or is wrong. Imports what
        the plan names."""
        return cls.of(read_toml(Path(path)), Path(path))

    @classmethod
    def of(cls, tables: dict[str, Any], path: Path) -> Plan:
        """Of what was read from there."""
        table = read_table(PlanTable, tables, str(path))
        reading = _Reading(path)
        plan = reading.plan(table)
        if reading.problems:
            raise SettingsError(*reading.problems)
        return plan

    def add_to(self, backend: Backend) -> None:
        """Let the backend make the matches of this plan."""
        for one in self.profiles:
            backend.add(one.profile, one.function, assigner=one.assigner, name=one.name)

    def backend(self, matchmaking: Matchmaking, **options: Any) -> Backend:
        """One that does what the plan says. SettingsError if it does not say where matches are played."""
        if self.assigner is None and not all(one.assigner for one in self.profiles):
            raise SettingsError(f"assigner ({self.path}) is missing: say where matches are played")
        backend = matchmaking.backend(self.assigner, evaluator=self.evaluator, **options)
        self.add_to(backend)
        return backend

    def pools(self) -> Iterator[tuple[str, Pool]]:
        """Each, with the name of its profile."""
        for one in self.profiles:
            for pool in one.profile.pools:
                yield one.profile.name, pool


class _Reading:
    """From tables to a plan; what is wrong is gathered in `problems`."""

    def __init__(self, path: Path) -> None:
        self.problems = Problems()
        self._path, self._origin = path, str(path)
        self._functions = Functions(path.absolute().parent, self._origin)

    def plan(self, table: PlanTable) -> Plan:
        if not table.profiles:
            self.problems.append(f"profiles ({self._origin}) is empty: nobody would ever be matched")
        self._refuse_repeated([profile.name for profile in table.profiles])
        planned = [self._planned(profile, f"profiles[{at}]") for at, profile in enumerate(table.profiles)]
        evaluator = None
        with self.problems.collecting():
            if table.evaluator:
                evaluator = self._functions.imported(table.evaluator.function, table.evaluator.options, "evaluator")
        assigner = self._assigner(table.assigner, "assigner")
        kept = tuple(one for one in planned if one is not None)
        return Plan(self._path, kept, assigner, evaluator, table.population)

    def _refuse_repeated(self, names: list[str]) -> None:
        for at, name in enumerate(names):
            if name in names[:at]:
                self.problems.append(f"profiles[{at}].name = {name!r} ({self._origin}): another profile has this name")

    def _planned(self, table: ProfileTable, place: str) -> Planned | None:
        pools = [self._pool(pool, f"{place}.pools[{at}]") for at, pool in enumerate(table.pools)]
        profile = Profile(table.name, pools or [EVERYONE])
        assigner = self._assigner(table.assigner, f"{place}.assigner")
        with self.problems.collecting():
            function = self._functions.match_function(table.function, table.options, place)
            return Planned(profile, function, table.function, assigner)
        return None

    def _pool(self, table: PoolTable, place: str) -> Pool:
        doubles = []
        for arg, limits in table.doubles.items():
            # Also where one of them is NaN, which is in no order.
            if not limits.min <= limits.max:
                at = f"{place}.doubles.{arg} = {limits.min:g} to {limits.max:g}"
                self.problems.append(f"{at} ({self._origin}): no number is in it")
            doubles.append(DoubleRange(arg, limits.min, limits.max, limits.exclude))
        return Pool(
            table.name,
            tags=table.tags,
            strings=table.strings,
            doubles=doubles,
            created_before=table.created_before.timestamp() if table.created_before else None,
            created_after=table.created_after.timestamp() if table.created_after else None,
        )

    def _assigner(self, table: AssignerTable | None, place: str) -> Assigner | None:
        with self.problems.collecting():
            return None if table is None else self._made_assigner(table, place)
        return None

    def _made_assigner(self, table: AssignerTable, place: str) -> Assigner:
        ways = {
            "function": partial(self._functions.imported, table.function, table.options, place),
            "connection": partial(ByTemplate, table.connection),
            "exec": partial(self._program, table, place),
        }
        given = [way for way in ways if getattr(table, way)]
        if len(given) != 1:
            raise SettingsError(f"{place} ({self._origin}): expected one of function, connection and exec")
        try:
            assigner: Assigner = ways[given[0]]()
        except WrongValue as error:
            raise SettingsError(f"{place}.{given[0]} ({self._origin}): {error}") from error
        return assigner

    def _program(self, table: AssignerTable, place: str) -> Assigner:
        first, *rest = table.exec
        program = shutil.which(str(self._path.absolute().parent / first) if "/" in first else first)
        if program is None:
            raise SettingsError(f"{place}.exec[0] = {first!r} ({self._origin}): there is no such program")
        return ByProgram(program, rest, timeout_s=table.timeout_s, at_once=table.at_once)
