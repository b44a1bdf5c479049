"""Any order of all that can be done to items and contexts, while time moves: memory does what its model does.

The steps are thrown with a seed, so that a run can be repeated; what was done before a failure is in its notes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import msgspec
import pytest
from tests.memory.comparing import LIVES
from tests.memory.walking import Walk

from kizuna.app import connect
from kizuna.settings import Settings
from kizuna.testing import ServerProcess
from kizuna.testing.resp import Conversation

SEEDS = range(1, 9)
STEPS = 100


async def walk(settings: Settings, server: ServerProcess, root: str, seed: int, steps: int) -> Counter[str]:
    """Returns what was told, and how often."""
    with server.connect() as conversation, server.connect() as listener:
        listener.call("PSUBSCRIBE", f"{root}:events:memory:*")
        async with connect(msgspec.structs.replace(settings, memory=LIVES)) as k:
            walk = Walk(k, conversation, root, seed, await k.store.time_s())
            try:
                for _ in range(steps):
                    await walk.step()
                await walk.sweep()
                await walk.compare_all()
            except BaseException as error:
                error.add_note(f"seed {seed}, after:\n" + "\n".join(walk.notes))
                raise
        # What is in the feed is what was published.
        assert Counter(heard(listener, f"{root}:events:memory:")) == Counter(map(kind_of, walk.told.elements()))
    return walk.told


def heard(listener: Conversation, before: str) -> Iterator[str]:
    """The channels of all messages until now: the answer to a PING comes after them."""
    reply = listener.call("PING")
    while reply[0] != b"pong":
        yield reply[2].decode().removeprefix(before)
        reply = listener._next_reply()


def kind_of(told: str) -> str:
    return told.partition(" ")[0]


@pytest.mark.parametrize("seed", SEEDS)
async def test_memory_does_what_its_model_does(settings: Settings, server: ServerProcess, root: str, seed: int) -> None:
    told = await walk(settings, server, root, seed, STEPS)

    # Else it was no walk worth taking.
    assert told["item:expired time"] > 0
    assert told["item:deleted changed"] + told["item:deleted generation"] + told["item:deleted context"] > 0
