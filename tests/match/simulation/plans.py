"""Plans with a population, as files."""

from __future__ import annotations

from pathlib import Path

DUELS = """
[[profiles]]
name = "duel"
function = "one_against_one"
"""

TEAMS = """
[[profiles]]
name = "ranked"
function = "regions"
options = { limit_ms = 60, function = { name = "teams", size = 2, window = 100 } }
[[profiles.pools]]
name = "ranked"
strings = { mode = "ranked" }
[[profiles]]
name = "casual"
function = "parties"
options = { players = 4 }
[[profiles.pools]]
name = "casual"
strings = { mode = "casual" }
"""

PLAYERS = """
[population]
arrivals_per_minute = 30
hours = 0.2
party_sizes = { 1 = 3, 2 = 1 }
strings.mode = { ranked = 2, casual = 1, zen = 1 }
tags = { beta = 0.5 }
patience_s = { mean = 60, deviation = 20, least = 5 }
match_s = { shape = "uniform", least = 30, most = 60 }
come_back = 0.5
regions.here = { share = 2, latency_ms = { eu = 20, us = 100 } }
regions.there = { latency_ms = { us = 20, eu = 100 } }
"""

ALONE = """
[population]
arrivals_per_minute = 20
hours = 0.5
"""


def written(folder: Path, text: str, name: str = "arena.toml") -> str:
    path = folder / name
    path.write_text(text)
    return str(path)
