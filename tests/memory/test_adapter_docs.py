"""What the pages about sealing, REST and LangGraph show runs as it stands there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.memory.test_sealing import NEW, in_base64
from tests.test_docs_examples import IMAGINED, examples, run

from kizuna.app import connect
from kizuna.memory.rest.openapi import OPENAPI
from kizuna.settings import Secret, Settings

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture
def ready(settings: Settings) -> Settings:
    memory = msgspec.structs.replace(settings.memory, rest_port=0, seal_keys=Secret(f"new:{in_base64(NEW)}"))
    return msgspec.structs.replace(settings, memory=memory)


def names_with(**others: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    exec(IMAGINED, found)
    return found | others


async def test_sealing(ready: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    async with connect(ready) as k:
        [sealing] = examples("memory-sealing.md")
        await run(sealing, names_with(k=k))

    assert capsys.readouterr().out == "True {'code': 7}\n"


async def test_rest_and_langgraph(ready: Settings) -> None:
    serving, storing = examples("memory-adapters.md")
    async with connect(ready) as k:
        await run(serving, names_with(k=k))
        names = names_with(k=k)
        await run(storing, names)
        assert [item.value for item in names["found"]] == [{"food": "ramen", "stars": 5}]
        assert [item.id async for item in k.memory.all(type="langgraph")] == ["langgraph/users/ana=likes"]


def test_every_path_is_on_the_page() -> None:
    page = (DOCS / "memory-adapters.md").read_text().replace("{name}", "{id}")
    shown = {path.partition("?")[0] for path in re.findall(r"(/[a-z][^\s`,]*)", page)}
    missing = [path for path in OPENAPI["paths"] if path not in shown and f"/{path.rpartition('/')[2]}" not in shown]

    assert missing == []
