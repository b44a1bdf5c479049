"""`kizuna match simulate`, which needs no server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.match.simulation.plans import ALONE, DUELS, PLAYERS, TEAMS, written

from kizuna.cli import command
from kizuna.cli.exit_codes import BAD_SETTINGS, FAILURE, USAGE
from kizuna.testing.commands import Runner

EXAMPLE = Path(__file__).parents[3] / "examples" / "arena.toml"


@pytest.fixture
def simulate(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Runner:
    """With the settings that there are by default, and a server that cannot be reached."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "100")
    return Runner(command, "--url", "redis://127.0.0.1:1", "match", "simulate")


def test_the_example_is_played_and_drawn(simulate: Runner) -> None:
    shown = simulate.done(str(EXAMPLE), "--hours", "0.1").stdout

    assert shown.startswith("ranked: regions\n  ")
    assert "duel: one_against_one\n  " in shown
    for title in ("waited", "skill apart in a match", "skill apart between teams", "latency"):
        assert title in shown
    assert "p50 " in shown
    assert "█" in shown


def test_machines_get_an_object_for_each_profile(simulate: Runner, tmp_path: Path) -> None:
    ranked, casual, nobody = simulate.rows(written(tmp_path, TEAMS + PLAYERS))

    assert (ranked["profile"], casual["profile"], nobody["profile"]) == ("ranked", "casual", "")
    assert ranked["waited_s"].keys() == {"mean", "p50", "p95", "p99", "most"}
    assert (ranked["seed"], ranked["hours"], ranked["file"]) == (1, 0.2, str(tmp_path / "arena.toml"))
    assert nobody["matches"] == 0
    assert nobody["gave_up"] > 0


def test_seed_and_hours_can_be_others(simulate: Runner, tmp_path: Path) -> None:
    file = written(tmp_path, TEAMS + PLAYERS)
    first, again, other = (simulate.rows(file, "--seed", seed, "--hours", "0.1") for seed in ("3", "3", "4"))

    assert first == again != other
    assert {(row["seed"], row["hours"]) for row in first} == {(3, 0.1)}


def test_several_files_are_compared_with_the_population_of_the_first(simulate: Runner, tmp_path: Path) -> None:
    one, other = written(tmp_path, DUELS + ALONE, "a.toml"), written(tmp_path, DUELS, "b.toml")
    first, second = simulate.rows(one, other)
    table = simulate.done(one, other).stdout.splitlines()

    assert {**first, "file": ""} == {**second, "file": ""}
    assert table[0].split()[:4] == ["FILE", "PROFILE", "MATCHED", "GAVE"]
    assert [line.split()[0] for line in table[1:]] == [one, other]


def test_the_histograms_are_written_as_a_picture(simulate: Runner, tmp_path: Path) -> None:
    ended = simulate.done(written(tmp_path, DUELS + ALONE), "--png", "out.png")

    assert (tmp_path / "out.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert ended.stderr == "The picture is in out.png.\n"


@pytest.mark.parametrize("name", ["out.jpg", "out.png.svg"])
def test_a_picture_of_another_kind_is_refused_and_nothing_is_played(
    simulate: Runner, tmp_path: Path, name: str
) -> None:
    ended = simulate(written(tmp_path, DUELS + ALONE), "--png", name)

    assert (ended.exit_code, ended.stdout) == (USAGE, "")
    assert f"{name} is no name for a PNG" in ended.stderr
    assert not (tmp_path / name).exists()


@pytest.mark.parametrize("name", ["out.PNG", "out"])
def test_a_picture_may_have_any_name_that_does_not_say_otherwise(simulate: Runner, tmp_path: Path, name: str) -> None:
    simulate.done(written(tmp_path, DUELS + ALONE), "--hours", "0.01", "--png", name)

    assert (tmp_path / name).read_bytes().startswith(b"\x89PNG\r\n\x1a\n")


def test_a_picture_that_cannot_be_written_is_told(simulate: Runner, tmp_path: Path) -> None:
    ended = simulate(written(tmp_path, DUELS + ALONE), "--hours", "0.01", "--png", "nowhere/out.png")

    assert (ended.exit_code, ended.stderr) == (
        FAILURE,
        "Error: nowhere/out.png cannot be written: No such file or directory\n",
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (DUELS, "population (arena.toml) is missing: say who comes, in a table [population]"),
        (DUELS + "[population]\n", "population.arrivals_per_minute (arena.toml) is missing"),
        (
            DUELS + ALONE + "patiense_s = 3\n",
            "population.patiense_s (arena.toml) means nothing; did you mean patience_s?",
        ),
        (ALONE, "profiles (arena.toml) is missing"),
        (
            '[[profiles]]\nname = "a"\nfunction = "teem"\n' + ALONE,
            "profiles[0].function = 'teem' (arena.toml): did you mean",
        ),
        ('[[profiles]]\nname = "a"\nfunction = "teams"\noptions.size = 0\n' + ALONE, "size of teams cannot be 0"),
    ],
)
def test_files_that_are_wrong_are_told_in_a_sentence(simulate: Runner, tmp_path: Path, text: str, problem: str) -> None:
    written(tmp_path, text)
    ended = simulate("arena.toml")

    assert problem in ended.stderr
    assert (ended.exit_code, ended.stdout) == (BAD_SETTINGS, "")


def test_a_function_that_fails_is_told(simulate: Runner, tmp_path: Path) -> None:
    (tmp_path / "arena_that_fails.py").write_text("def play(waiting):\n    raise ValueError('no idea')\n")
    own = DUELS.replace("one_against_one", "arena_that_fails:play")
    ended = simulate(written(tmp_path, own + ALONE))

    assert ended.exit_code == FAILURE
    assert ended.stderr == "Error: match function arena_that_fails:play of profile duel: ValueError('no idea')\n"


def test_json_can_be_read_line_by_line(simulate: Runner, tmp_path: Path) -> None:
    shown = simulate.done(written(tmp_path, DUELS + ALONE), "--json").stdout

    assert [json.loads(line)["profile"] for line in shown.splitlines()] == ["duel"]
