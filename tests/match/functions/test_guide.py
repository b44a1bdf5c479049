"""What docs/match-functions.md shows is true."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path
from textwrap import dedent
from typing import Any

import msgspec
from tests.match.simulation.plans import ALONE

from kizuna.app import connect
from kizuna.match.functions import READY
from kizuna.match.plan import Plan
from kizuna.match.simulation.population import Population, read_population
from kizuna.settings import Settings

REPOSITORY = Path(__file__).parents[3]
PAGE = (REPOSITORY / "docs" / "match-functions.md").read_text()


def blocks(language: str) -> list[str]:
    found: list[str] = re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert found
    return found


async def test_its_python_runs(settings: Settings) -> None:
    async with connect(settings) as k:
        names: dict[str, Any] = {"k": k}
        for block in blocks("python"):
            code = compile(dedent(block), "<guide>", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            result = eval(code, names)
            if inspect.iscoroutine(result):
                await result
        tickets = [await k.match.create_ticket(tags=["duel"]) for _ in range(2)]
        tick = await names["backend"].tick()

        assert [sorted(match.ticket_ids) for match in tick.matches] == [sorted(ticket.id for ticket in tickets)]


def test_its_plan_can_be_read(tmp_path: Path) -> None:
    [text] = blocks("toml")
    plan = tmp_path / "plan.toml"
    plan.write_text(text + ALONE)

    assert [planned.name for planned in Plan.load(plan).profiles] == ["regions"]


def test_every_ready_function_is_listed_with_its_options() -> None:
    for name, factory in READY.items():
        [listed] = re.findall(rf"^\| `{name}\((.*)\)` \|", PAGE, re.MULTILINE)
        for option, parameter in inspect.signature(factory).parameters.items():
            if parameter.kind is parameter.KEYWORD_ONLY:
                default = parameter.default
                told = f'"{default}"' if isinstance(default, str) else f"{default:g}"
                assert f"{option}={told}" in listed


def test_every_part_of_a_population_is_listed() -> None:
    for field in msgspec.structs.fields(Population):
        assert f"`{field.name}" in PAGE, field.name


def test_the_example_that_is_shown_is_the_one_there_is() -> None:
    path = REPOSITORY / "examples" / "arena.toml"
    population = read_population(Plan.load(path).population, str(path))

    assert (population.hours, population.seed) == (24, 1)
    assert [planned.profile.name for planned in Plan.load(path).profiles] == ["ranked", "duel"]
