"""The file that says what a backend does, as it is written: tables and their types. `Plan` is made of it."""

from __future__ import annotations

import math
from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

Name = Annotated[str, Meta(min_length=1, description="text that is not empty")]
Time = Annotated[datetime, Meta(tz=True, description="a time with its zone, as 2026-01-31T12:00:00Z")]


class RangeTable(Struct, kw_only=True, frozen=True):
    min: float = -math.inf
    max: float = math.inf
    exclude: Literal["none", "min", "max", "both"] = "none"


class PoolTable(Struct, kw_only=True, frozen=True):
    name: Name
    tags: list[str] = []
    strings: dict[str, str] = {}
    doubles: dict[str, RangeTable] = {}
    created_before: Time | None = None
    created_after: Time | None = None


class AssignerTable(Struct, kw_only=True, frozen=True):
    """One of the first three says how game servers are found."""

    function: str = ""
    connection: str = ""
    exec: list[str] = []
    options: dict[str, Any] | None = None
    """For a function: what is named is called with these, and returns the assigner."""
    timeout_s: Annotated[float, Meta(gt=0)] = 30.0
    """For a program, that is killed then."""
    at_once: Annotated[int, Meta(ge=1)] = 16
    """So many programs run side by side."""


class EvaluatorTable(Struct, kw_only=True, frozen=True):
    function: Name
    options: dict[str, Any] | None = None


class ProfileTable(Struct, kw_only=True, frozen=True):
    name: Name
    function: Name
    options: dict[str, Any] | None = None
    pools: list[PoolTable] = []
    """None: the one that everybody is in."""
    assigner: AssignerTable | None = None
    """For the matches of this profile; else the one of all."""


class PlanTable(Struct, kw_only=True, frozen=True):
    profiles: list[ProfileTable]
    assigner: AssignerTable | None = None
    evaluator: EvaluatorTable | None = None
    population: dict[str, Any] | None = None
    """The players of a simulation, who are nothing to a backend."""
