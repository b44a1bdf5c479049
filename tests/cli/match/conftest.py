"""`kizuna match` on the server and the root of the test."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kizuna.cli import command
from kizuna.testing.commands import Command, Runner
from kizuna.testing.leaks import BEHIND_MATCH

PLAN = """
[[profiles]]
name = "duel"
function = "one_against_one"
[[profiles.pools]]
name = "eu"
tags = ["region:eu"]
[[profiles.pools]]
name = "us"
tags = ["region:us"]
[assigner]
connection = "game-{number}.example.com:7777"
"""


@pytest.fixture
def words(server_url: str, root: str) -> list[str]:
    """What stands before `match`."""
    roots = [f"roots.{name}={root}" for name in ("system", "coordination", "units", "memory")]
    texts = [*roots, f"roots.match={root}{BEHIND_MATCH}", "store.timeout_s=20", "probes.port=0"]
    return ["--url", server_url, *(word for text in texts for word in ("--set", text))]


@pytest.fixture
def kizuna(words: list[str]) -> Runner:
    return Runner(command, *words, "match")


@pytest.fixture
def start_match(words: list[str], start_command: Callable[..., Command]) -> Callable[..., Command]:
    """One that runs until it is told to stop."""
    return lambda *arguments: start_command(*words, "match", *arguments, "--json")


@pytest.fixture
def plan(tmp_path: Path) -> str:
    """Duels in two regions."""
    path = tmp_path / "plan.toml"
    path.write_text(PLAN)
    return str(path)
