"""The lists of issues against a model that is too simple to be wrong."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from kizuna.app import Kizuna
from kizuna.coordination.issues import COMPLETED, ENDED, PENDING, PROCESSING, Issues
from kizuna.errors import IssueLost, IssueTaken
from kizuna.settings import Settings
from kizuna.testing import ServerProcess

PEOPLE = ("one", "other")
STEPS = st.tuples(
    st.sampled_from(PEOPLE),
    st.sampled_from(["1", "2", "x"]),
    st.sampled_from(
        [
            "checkout",
            "complete",
            "fail",
            "release",
            "reopen",
            "forget",
            "pending",
            "waiting",
            "completed",
            "cancelled",
            "die",
        ]
    ),
    st.booleans(),
)


class Model:
    """What the issues should be: name to (status, who has it, status before)."""

    def __init__(self) -> None:
        self.known: dict[str, tuple[str, str, str]] = {}
        self.today: set[str] = set()

    def step(self, who: str, issue: str, verb: str, force: bool) -> bool:
        """Whether it is allowed; and do it then."""
        status, by, before = self.known.get(issue, ("", "", ""))
        ours, free = status == PROCESSING and by == who, status != PROCESSING or by == who
        allowed = {
            "checkout": status in ("", PENDING),
            "complete": ours or force,
            "fail": ours or force,
            "release": ours or force,
            "reopen": status in ENDED,
            "die": True,
        }.get(verb, free or force)
        if allowed:
            self._do(who, issue, verb, before)
        return allowed

    def _do(self, who: str, issue: str, verb: str, before: str) -> None:
        if verb == "die":
            for name, (status, by, was) in self.known.items():
                if status == PROCESSING and by == who:
                    self.known[name] = (was or PENDING, "", "")
            return
        self.today.discard(issue)
        if verb == "forget":
            self.known.pop(issue, None)
            return
        if verb == "checkout":
            self.known[issue] = (PROCESSING, who, self.known.get(issue, ("", "", ""))[0])
            return
        status = {"complete": COMPLETED, "fail": "failed", "release": before or PENDING, "reopen": PENDING}.get(
            verb, verb
        )
        self.known[issue] = (status, "", "")
        if status == COMPLETED:
            self.today.add(issue)


async def do(issues: Issues, issue: str, verb: str, force: bool) -> bool:
    steps: dict[str, Callable[[], Awaitable[object]]] = {
        "checkout": lambda: issues.checkout(issue),
        "complete": lambda: issues.complete(issue, force=force),
        "fail": lambda: issues.fail(issue, force=force),
        "release": lambda: issues.release(issue, force=force),
        "reopen": lambda: issues.reopen(issue),
        "forget": lambda: issues.forget(issue, force=force),
        "die": lambda: issues.give_back(issues.process),
    }
    try:
        await steps.get(verb, lambda: issues.set_status(issue, verb, force=force))()
    except (IssueTaken, IssueLost):
        return False
    return True


@examples(max_examples=25, deadline=None)
@given(steps=st.lists(STEPS, max_size=15))
def test_statuses_and_both_lists_agree_with_a_model_after_any_steps(
    server: ServerProcess, steps: list[tuple[str, str, str, bool]]
) -> None:
    asyncio.run(agree(server.url, steps))


async def agree(server_url: str, steps: list[tuple[str, str, str, bool]]) -> None:
    k = Kizuna(msgspec.convert({"store": {"url": server_url}, "roots": {"coordination": "t-model"}}, Settings))
    await k.store.open()
    try:
        people = {name: Issues(k.store, name) for name in PEOPLE}
        one, model = people["one"], Model()
        for issue in ("1", "2", "x"):
            await one.forget(issue, force=True)
        for who, issue, verb, force in steps:
            assert await do(people[who], issue, verb, force) == model.step(who, issue, verb, force)
            assert {pair async for pair in one.all()} == {(name, facts[0]) for name, facts in model.known.items()}
            processing = {name for name, facts in model.known.items() if facts[0] == PROCESSING}
            assert set(await one.processing()) == processing
            assert set(await one.completed_today()) == model.today
            assert [fault async for fault in one.verify()] == []
    finally:
        await k.aclose()
