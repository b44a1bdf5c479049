"""Simulated time: who comes is matched, gives up or waits, and nothing else becomes of anybody."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from pathlib import Path

import pytest
from tests.match.simulation.plans import ALONE, DUELS, PLAYERS, TEAMS, written

from kizuna.errors import TickFailed
from kizuna.match.matches import Match, MatchFunction, Waiting
from kizuna.match.plan import Plan, Planned
from kizuna.match.pools import Pool, Profile
from kizuna.match.simulation.outcome import NOBODY, Outcome
from kizuna.match.simulation.players import Players
from kizuna.match.simulation.population import read_population
from kizuna.match.simulation.world import simulate
from kizuna.settings import MatchSettings

SETTINGS = MatchSettings()


def play(
    folder: Path, text: str, *, seed: int | None = None, hours: float | None = None, settings: MatchSettings = SETTINGS
) -> Outcome:
    plan = Plan.load(written(folder, text))
    population = read_population(plan.population, "arena.toml")
    return asyncio.run(simulate(plan, population, seed=seed, hours=hours, settings=settings))


def play_own(function: MatchFunction, population: dict[str, object], **options: object) -> Outcome:
    """With a function of the test's own on one pool of everybody."""
    plan = Plan(Path("own.toml"), (Planned(Profile("own", [Pool("all")]), function, "mine"),), **options)  # type: ignore[arg-type]
    return asyncio.run(simulate(plan, read_population(population, "own.toml"), settings=SETTINGS))


def test_everybody_who_comes_is_matched_gives_up_or_waits(tmp_path: Path) -> None:
    """And is counted where they belong: nobody plays zen."""
    text = TEAMS + PLAYERS.replace("come_back = 0.5", "")
    outcome = play(tmp_path, text)
    population = read_population(Plan.load(written(tmp_path, text)).population, "arena.toml")
    came = [party.message.search_fields.string_args["mode"] for _, party in Players(population, 1).arrivals(0.2)]

    assert len(came) > 200
    told = {"ranked": "ranked", "casual": "casual", "zen": NOBODY}
    assert {mode: outcome.profiles[name].came for mode, name in told.items()} == Counter(came)
    assert outcome.profiles[NOBODY].matches == 0


def test_matches_are_what_the_functions_make(tmp_path: Path) -> None:
    outcome = play(tmp_path, TEAMS + PLAYERS)
    ranked, casual = outcome.profiles["ranked"], outcome.profiles["casual"]

    assert ranked.matches > 10
    assert (ranked.players, casual.players) == (4 * ranked.matches, 4 * casual.matches)
    assert len(ranked.waited_s) == len(ranked.latency_ms) == ranked.tickets
    assert len(ranked.skill_apart) == len(ranked.teams_apart) == ranked.matches
    assert max(ranked.skill_apart) <= 1000
    assert max(ranked.latency_ms) <= 300
    assert (casual.teams_apart, casual.latency_ms) == ([], [])
    assert ranked.function == "regions"


def test_who_comes_back_plays_more_than_once(tmp_path: Path) -> None:
    once = play(tmp_path, DUELS + ALONE)
    again = play(tmp_path, DUELS + ALONE + "come_back = 0.9\nmatch_s = { mean = 60 }")

    assert again.profiles["duel"].tickets > 2 * once.profiles["duel"].tickets


def test_the_same_seed_gives_the_same_and_another_one_does_not(tmp_path: Path) -> None:
    first, second, other = (play(tmp_path, TEAMS + PLAYERS, seed=seed).as_dicts() for seed in (7, 7, 8))

    assert first == second
    assert [row["seed"] for row in first] == [7, 7, 7]
    assert first != other


def test_two_duelists_never_wait_together_longer_than_a_backend_gathers(tmp_path: Path) -> None:
    outcome = play(tmp_path, DUELS + ALONE)
    [duel] = outcome.shown()

    assert duel.waited_s.percentile(1) == pytest.approx(SETTINGS.gather_s, abs=1e-5)
    assert duel.waiting <= 1
    assert duel.tickets == 2 * duel.matches


def test_nobody_gives_up_before_their_patience_ends(tmp_path: Path) -> None:
    outcome = play(
        tmp_path, TEAMS + PLAYERS.replace("latency_ms = { eu = 20, us = 100 }", "latency_ms = { eu = 9000 }")
    )
    gone = outcome.profiles[NOBODY].gave_up_after_s

    assert len(gone) > 10
    assert min(gone) >= 5
    assert all(math.isfinite(waited_s) for waited_s in gone)


def test_the_patient_give_up_when_their_ticket_ends(tmp_path: Path) -> None:
    endless = PLAYERS.replace("patience_s = { mean = 60, deviation = 20, least = 5 }", "patience_s = { mean = 1e6 }")
    outcome = play(tmp_path, TEAMS + endless, settings=MatchSettings(ticket_s=30))

    assert set(map(round, outcome.profiles[NOBODY].gave_up_after_s)) == {30}


def test_a_fetch_limit_is_kept_and_starves_nobody() -> None:
    seen: list[int] = []
    met: set[str] = set()

    def look(waiting: Waiting) -> list[Match]:
        seen.append(len(waiting.tickets))
        met.update(ticket.id for ticket in waiting.tickets)
        return []

    plan = Plan(Path("own.toml"), (Planned(Profile("own", [Pool("all")]), look, "mine"),))
    population = read_population({"arrivals_per_minute": 60, "hours": 0.05, "patience_s": {"mean": 1e5}}, "own.toml")
    outcome = asyncio.run(simulate(plan, population, settings=MatchSettings(fetch_limit=10)))

    assert outcome.profiles["own"].waiting > 100
    assert max(seen) == 10
    assert len(met) >= outcome.profiles["own"].waiting - 10


def test_functions_and_evaluators_may_be_async() -> None:
    async def pair(waiting: Waiting) -> list[Match]:
        return [Match(waiting.tickets[:2], score=1.0)] if len(waiting.tickets) > 1 else []

    async def keep_none(_: object) -> list[str]:
        return []

    population: dict[str, object] = {"arrivals_per_minute": 30, "hours": 0.1}
    assert play_own(pair, population).profiles["own"].matches > 20
    assert play_own(pair, population, evaluator=keep_none).profiles["own"].matches == 0


def test_no_ticket_plays_twice_whatever_a_function_returns() -> None:
    def twice(waiting: Waiting) -> list[Match]:
        return [Match(waiting.tickets[:1]), Match(waiting.tickets[:1])]

    own = play_own(twice, {"arrivals_per_minute": 30, "hours": 0.1}).profiles["own"]
    assert own.tickets == own.matches == own.came


def test_pools_of_one_name_are_one_and_nobody_is_in_it_twice() -> None:
    seen: list[list[str]] = []

    def look(waiting: Waiting) -> list[Match]:
        [tickets] = waiting.pools.values()
        seen.append([ticket.id for ticket in tickets])
        return []

    pools = [Pool("a", tags=["x"]), Pool("a", tags=["y"])]
    plan = Plan(Path("own.toml"), (Planned(Profile("own", pools), look, "mine"),))
    tags = {"arrivals_per_minute": 60, "hours": 0.02, "tags": {"x": 0.5, "y": 0.5}}
    asyncio.run(simulate(plan, read_population(tags, "own.toml"), settings=SETTINGS))

    assert max(map(len, seen)) > 20
    assert all(ids == sorted(set(ids)) for ids in seen)


@pytest.mark.parametrize(("who", "fails"), [("match function mine of profile own", True), ("evaluator", False)])
def test_what_fails_is_told(who: str, fails: bool) -> None:
    def fail(_: object) -> list[Match]:
        raise ValueError("no idea")

    def alone(waiting: Waiting) -> list[Match]:
        return [Match([ticket]) for ticket in waiting.tickets]

    with pytest.raises(TickFailed, match=rf"{who}: ValueError\('no idea'\)"):
        play_own(fail if fails else alone, {"arrivals_per_minute": 30}, evaluator=fail)


def test_a_match_without_skills_teams_or_a_region_has_no_quality() -> None:
    def alone(waiting: Waiting) -> list[Match]:
        return [Match([ticket], extensions={"teams": "red", "region": 7}) for ticket in waiting.tickets]

    own = play_own(alone, {"arrivals_per_minute": 30, "hours": 0.1}).profiles["own"]
    assert own.matches > 10
    assert own.skill_apart == own.teams_apart == own.latency_ms == []
    assert own.as_dict()["skill_apart"] is None
