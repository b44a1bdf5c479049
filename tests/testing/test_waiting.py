from __future__ import annotations

import asyncio

import pytest

from kizuna.testing import eventually


async def test_it_returns_what_the_check_returns_once_that_is_true() -> None:
    values = iter([0, None, "", "ready"])

    assert await eventually(lambda: next(values), every_s=0.001) == "ready"


async def test_an_async_check_may_say_not_yet_by_an_assertion() -> None:
    seen: list[int] = []

    async def three_seen() -> list[int]:
        seen.append(len(seen))
        await asyncio.sleep(0)
        assert len(seen) == 3
        return seen

    assert await eventually(three_seen, every_s=0.001) == [0, 1, 2]


async def test_it_fails_with_the_last_value_and_the_time() -> None:
    def queue_is_empty() -> int:
        return 0

    with pytest.raises(AssertionError, match=r"not true within 0\.0\d+s; .*queue_is_empty last said: 0"):
        await eventually(queue_is_empty, within_s=0.03, every_s=0.001)


async def test_it_fails_with_the_last_assertion_as_its_cause() -> None:
    def no_keys_left() -> bool:
        raise AssertionError("kizuna:x is left")

    with pytest.raises(AssertionError, match="last said: kizuna:x is left") as failed:
        await eventually(no_keys_left, within_s=0.03)

    assert str(failed.value.__cause__) == "kizuna:x is left"


async def test_other_errors_go_up_at_once() -> None:
    async def times_out_by_itself() -> bool:
        raise TimeoutError("mine")

    with pytest.raises(TimeoutError, match="mine"):
        await eventually(times_out_by_itself)


async def test_a_check_that_hangs_is_cut_off() -> None:
    with pytest.raises(AssertionError, match="the first call did not return"):
        await eventually(asyncio.Event().wait, within_s=0.03)
