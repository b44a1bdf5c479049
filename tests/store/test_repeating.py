"""When a step is taken again, and what is raised when that does not help."""

from __future__ import annotations

import asyncio

import pytest

from kizuna.errors import OutcomeUnknown, Refused, StoreError, Unreachable
from kizuna.store.repeating import until_known

UNKNOWN = OutcomeUnknown("the connection was lost", "there", "look")
AWAY = Unreachable("nobody answers", "there", "wait")
REFUSED = Refused("ERR no", "there", "do not")


async def taken(*outcomes: StoreError | int) -> tuple[int | StoreError, int]:
    """What comes of steps that end so, one after the other, and how many were taken."""
    left = list(outcomes)

    async def step() -> int:
        outcome = left.pop(0)
        if isinstance(outcome, StoreError):
            raise outcome
        return outcome

    try:
        return await until_known(step), len(outcomes) - len(left)
    except StoreError as error:
        return error, len(outcomes) - len(left)


@pytest.mark.parametrize(
    ("outcomes", "result", "steps"),
    [
        ((7,), 7, 1),
        ((UNKNOWN, 7), 7, 2),
        ((UNKNOWN, AWAY, 7), 7, 3),
        ((UNKNOWN, UNKNOWN, UNKNOWN, 7), UNKNOWN, 3),
        # It may have happened the first time, so it is not said that it did not.
        ((UNKNOWN, AWAY, AWAY), UNKNOWN, 3),
        ((AWAY, 7), AWAY, 1),
        ((REFUSED, 7), REFUSED, 1),
        ((UNKNOWN, REFUSED, 7), REFUSED, 2),
    ],
)
async def test_only_a_lost_answer_is_asked_for_again(
    outcomes: tuple[StoreError | int, ...], result: StoreError | int, steps: int
) -> None:
    assert await taken(*outcomes) == (result, steps)


async def test_a_step_may_be_another_when_it_is_taken_again() -> None:
    async def step() -> int:
        raise UNKNOWN

    async def again() -> int:
        return 7

    assert await until_known(step, again) == 7


async def test_nothing_is_repeated_beyond_the_deadline() -> None:
    taken = 0

    async def step() -> int:
        nonlocal taken
        taken += 1
        raise UNKNOWN

    with pytest.raises(OutcomeUnknown):
        await until_known(step, deadline=asyncio.get_running_loop().time())
    assert taken == 1
