"""Whoever looks at a graph finds in the documents what it shows."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest

from kizuna.match.backend.counts import Counts as BackendCounts
from kizuna.match.backend.counts import PoolState
from kizuna.match.backend.measures import measures_of as measures_of_backend
from kizuna.match.director.counts import Counts as DirectorCounts
from kizuna.memory.counts import Counts as MemoryCounts
from kizuna.memory.counts import measures_of as measures_of_memory

ROOT = Path(__file__).parents[1]
DOCUMENTS = "\n".join(path.read_text() for path in sorted((ROOT / "docs").glob("*.md")))


def literal_names() -> Iterator[str]:
    """Those that stand in the code as they are."""
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Measure":
                name = node.args[1]
                if isinstance(name, ast.Constant):
                    yield str(name.value)


def composed_names() -> Iterator[str]:
    """Those that are put together, of counts in which something was counted."""
    backend, memory = BackendCounts(), MemoryCounts()
    backend.took("1v1", 0.1)
    backend.saw("", "1v1", "everyone", PoolState())
    memory.tally("create")
    memory.observe_sweep(ended=0, late_ms=0, settled=0)
    sources = (measures_of_backend(backend), DirectorCounts().measures(under_way=0), measures_of_memory(memory))
    return (measure.name for measure in chain(*sources))


def is_told(name: str) -> bool:
    """In full, or as `…_swept_total` behind another one of its kind."""
    ends = [name[at.start() :] for at in re.finditer("_", name)]
    return f"`{name}" in DOCUMENTS or any(f"`…{end}" in DOCUMENTS for end in ends)


@pytest.mark.parametrize("name", sorted({*literal_names(), *composed_names()}))
def test_every_metric_is_in_a_document(name: str) -> None:
    assert is_told(name)


def test_a_metric_that_nobody_has_written_about_would_be_noticed() -> None:
    assert not is_told("kizuna_match_unheard_of_total")
