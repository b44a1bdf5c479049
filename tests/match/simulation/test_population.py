"""Who comes, drawn as a file describes them."""

from __future__ import annotations

import random
from statistics import fmean, stdev
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.match.functions.waiting_players import PATIENT

from kizuna.errors import SettingsError
from kizuna.match.simulation.draws import Draw
from kizuna.match.simulation.players import HOUR_S, Party, Players
from kizuna.match.simulation.population import Population, read_population


def population(**table: Any) -> Population:
    return read_population({"arrivals_per_minute": 60, **table}, "arena.toml")


def arrivals(hours: float = 1.0, seed: int = 1, **table: Any) -> list[tuple[float, Party]]:
    return list(Players(population(**table), seed).arrivals(hours))


def by_hour(found: list[tuple[float, Party]], start_s: float) -> dict[int, int]:
    counted: dict[int, int] = {}
    for now_s, _ in found:
        hour = int((now_s - start_s) // HOUR_S)
        counted[hour] = counted.get(hour, 0) + 1
    return counted


# arrivals


def test_as_many_come_as_the_number_says() -> None:
    found = arrivals(hours=2)

    assert len(found) == pytest.approx(7200, rel=0.06)
    assert [now_s for now_s, _ in found] == sorted(now_s for now_s, _ in found)


def test_numbers_by_the_hour_start_at_the_hour_of_the_day() -> None:
    by_the_hour = [0.0] * 24
    by_the_hour[22], by_the_hour[23], by_the_hour[0] = 10, 20, 40
    table: dict[str, Any] = {"arrivals_per_minute": by_the_hour, "starts_at": 22}
    counted = by_hour(arrivals(hours=4, **table), Players(population(**table), 1).start_s)

    assert counted == {0: pytest.approx(600, rel=0.2), 1: pytest.approx(1200, rel=0.2), 2: pytest.approx(2400, rel=0.2)}


def test_between_the_hours_of_a_table_it_rises_and_falls_evenly_around_midnight() -> None:
    curve = population(arrivals_per_minute={"6": 10, "18": 40}).arrivals

    assert [curve.at(hour) for hour in (6, 12, 18, 0, 3)] == [10, 25, 40, 25, 17.5]
    assert curve.most == 40
    assert curve.at(23.999) == pytest.approx(25, abs=0.01)
    assert population(arrivals_per_minute={"12": 7}).arrivals.at(3) == 7


def test_where_nobody_comes_nobody_comes() -> None:
    assert arrivals(arrivals_per_minute=0) == []


def test_the_same_seed_brings_the_same_people() -> None:
    first, second, other = ([(s, party.message) for s, party in arrivals(0.1, seed)] for seed in (1, 1, 2))

    assert first == second != other


# people


def test_people_are_as_described() -> None:
    table: dict[str, Any] = {
        "skill": {"mean": 1000, "deviation": 100, "least": 700, "most": 1300},
        "party_sizes": {"1": 3, "4": 1},
        "strings": {"mode": {"ranked": 9, "casual": 1}},
        "tags": {"beta": 0.25},
        "regions": {"here": {"share": 3, "latency_ms": {"eu": 20}}, "there": {"latency_ms": {"us": 30}}},
        "patience_s": {"mean": 60, "deviation": 10},
        "come_back": 0.5,
    }
    found = [party for _, party in arrivals(1, **table)]
    fields = [party.message.search_fields for party in found]
    skills = [one.double_args["skill"] for one in fields]

    assert fmean(skills) == pytest.approx(1000, abs=15)
    assert stdev(skills) == pytest.approx(100, rel=0.1)
    assert min(skills) >= 700
    assert max(skills) <= 1300
    assert {one.double_args["party_size"] for one in fields} == {1.0, 4.0}
    assert share(party.players == 4 for party in found) == pytest.approx(0.25, abs=0.05)
    assert share(one.string_args["mode"] == "ranked" for one in fields) == pytest.approx(0.9, abs=0.05)
    assert share("beta" in one.tags for one in fields) == pytest.approx(0.25, abs=0.05)
    assert share("latency.eu" in one.double_args for one in fields) == pytest.approx(0.75, abs=0.05)
    assert all(("latency.eu" in one.double_args) != ("latency.us" in one.double_args) for one in fields)
    assert fmean(party.patience_s for party in found) == pytest.approx(60, abs=2)
    assert fmean(party.returns for party in found) == pytest.approx(1, abs=0.15)


def share(found: Any) -> float:
    return fmean(map(float, found))


def test_who_is_alone_says_nothing_of_a_party() -> None:
    [*found] = arrivals(0.1)

    assert {tuple(party.message.search_fields.double_args) for _, party in found} == {("skill",)}
    assert {party.players for _, party in found} == {1}


@PATIENT
@given(
    draw=st.builds(
        Draw,
        shape=st.sampled_from(["normal", "lognormal", "exponential"]),
        mean=st.floats(0.1, 1e4),
        deviation=st.floats(0, 1e3),
        least=st.floats(-10, 10),
        most=st.floats(10, 1e5),
    ),
    seed=st.integers(0, 99),
)
def test_what_is_drawn_is_between_least_and_most(draw: Draw, seed: int) -> None:
    assert list(draw.problems()) == []
    assert draw.least <= draw.draw(random.Random(seed)) <= draw.most


@pytest.mark.parametrize("shape", ["normal", "lognormal", "exponential"])
def test_shapes_have_the_mean_that_they_say(shape: Any) -> None:
    chance = random.Random(1)
    draw = Draw(shape=shape, mean=50, deviation=20)

    assert fmean(draw.draw(chance) for _ in range(20_000)) == pytest.approx(50, rel=0.03)


def test_a_number_without_deviation_is_itself() -> None:
    assert Draw(mean=7).draw(random.Random(1)) == 7


# files that are wrong


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ({"arivals": 3}, "population.arivals (arena.toml) means nothing; "),
        ({"hours": 0}, "population.hours = 0 (arena.toml): expected a number, above 0"),
        ({"skill": 5}, "population.skill (arena.toml) = 5: expected a table"),
        ({"skill": {"shape": "flat"}}, "population.skill.shape = 'flat' (arena.toml): expected normal or lognormal"),
        ({"skill": {"shape": "uniform"}}, "population.skill (arena.toml): uniform goes from least to most: say both"),
        (
            {"skill": {"least": 5, "most": 4}},
            "population.skill (arena.toml): no number is between least = 5 and most = 4",
        ),
        ({"match_s": {"shape": "exponential"}}, "population.match_s (arena.toml): mean = 0: expected a number above 0"),
        ({"arrivals_per_minute": "many"}, "population.arrivals_per_minute (arena.toml): 'many': expected a number"),
        ({"arrivals_per_minute": -1}, "population.arrivals_per_minute (arena.toml): -1: expected a number from 0"),
        ({"arrivals_per_minute": float("nan")}, "population.arrivals_per_minute (arena.toml): nan: expected a number"),
        ({"arrivals_per_minute": True}, "population.arrivals_per_minute (arena.toml): True: expected a number"),
        ({"arrivals_per_minute": [1, 2]}, "arrivals_per_minute (arena.toml): expected 24 numbers, one for each hour"),
        ({"arrivals_per_minute": {}}, "population.arrivals_per_minute (arena.toml): expected at least one hour"),
        ({"arrivals_per_minute": {"24": 1}}, "arrivals_per_minute (arena.toml): '24' is no hour of the day"),
        ({"arrivals_per_minute": {"noon": 1}}, "arrivals_per_minute (arena.toml): 'noon' is no hour of the day"),
        ({"party_sizes": {"two": 1}}, "population.party_sizes (arena.toml): 'two' is no number of players"),
        ({"party_sizes": {"2": 0}}, "population.party_sizes (arena.toml): all shares are 0"),
        ({"strings": {"mode": {}}}, "population.strings.mode (arena.toml): all shares are 0"),
        ({"regions": {"eu": {"latency": 3}}}, "population.regions.eu.latency (arena.toml) means nothing"),
        (
            {"regions": {"eu": {"latency_ms": {"eu": 0}}}},
            "population.regions.eu.latency_ms.eu = 0 (arena.toml): expected",
        ),
        ({"tags": {"beta": 2}}, "population.tags.beta = 2 (arena.toml): expected a number, at least 0 and at most 1"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(table: dict[str, Any], problem: str) -> None:
    with pytest.raises(SettingsError) as refused:
        population(**table)

    assert problem in str(refused.value)


def test_a_population_says_at_least_how_many_come() -> None:
    with pytest.raises(SettingsError, match=r"population.arrivals_per_minute \(arena.toml\) is missing"):
        read_population({}, "arena.toml")


def test_all_problems_are_told_at_once() -> None:
    with pytest.raises(SettingsError) as refused:
        population(hours=0, come_back=2)

    assert len(refused.value.problems) == 2
