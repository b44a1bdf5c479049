"""Every example runs as it stands."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parent.parent / "examples"


def run(name: str, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """As a reader calls it, but with an embedded server of the test's own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("KIZUNA_")}
    ours = {
        "XDG_CONFIG_HOME": str(folder / "config"),
        "KIZUNA_EMBEDDED__FOLDER": str(folder / "server"),
        "KIZUNA_EMBEDDED__PORT": "0",
    }
    line = [sys.executable, str(EXAMPLES / name), *arguments]
    return subprocess.run(line, cwd=folder, env=kept | ours, capture_output=True, text=True, timeout=120, check=False)


def test_thumbnails_are_pushed_and_made(tmp_path: Path, server_folder: Path) -> None:
    ended = run("thumbnails.py", tmp_path)

    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.splitlines() == [
        "cat-100x100.png",
        "dog-100x100.png",
        "bird.png is the name of a file, and not of an animal",
        "cat is on paper",
    ]


def test_a_sensor_a_forecaster_and_a_display_know_each_other_by_name(tmp_path: Path, server_folder: Path) -> None:
    ended = run("weather.py", tmp_path)

    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.splitlines() == [
        "tomorrow 22.7 degrees",
        "no forecast: without readings there is nothing to say",
        "gone home",
        "temp set 23.5",
        "temp expired None",
    ]


def test_players_of_about_the_same_skill_meet(tmp_path: Path, server_folder: Path) -> None:
    ended = run("duel.py", tmp_path)

    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.splitlines() == [
        "Ana plays at masters.example.com:7777",
        "Ben plays at beginners.example.com:7777",
        "Chi plays at masters.example.com:7777",
        "Dan plays at beginners.example.com:7777",
        "Eve gave up",
    ]


def test_a_planner_and_a_researcher_share_a_scratch_pad(tmp_path: Path, server_folder: Path) -> None:
    ended = run("notebook.py", tmp_path)

    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.splitlines() == [
        "learned: the train takes 2 h 15 min",
        "learned: the inn has a garden",
        "left: 260",
        "summary: gone, since what it was made of has changed",
        "notes after the trip: 0",
    ]
