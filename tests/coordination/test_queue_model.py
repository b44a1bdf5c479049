"""Any order of pushing, taking, settling, lapsing and cancelling: the queue does what a few dicts would do."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Coroutine
from typing import Any, ClassVar, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, multiple, precondition, rule

from kizuna.app import Kizuna, connect
from kizuna.coordination.queue_names import PRIORITIES, Priority
from kizuna.coordination.queues.taking import Why, give_back
from kizuna.coordination.queues.tasks import Delivery
from kizuna.errors import LeaseLost, TaskUnknown
from kizuna.settings import QueuesSettings, RootsSettings, Settings, StoreSettings
from kizuna.testing import ServerProcess

T = TypeVar("T")

CRASHES = 3
ATTEMPTS = 3
IDS = [f"t{number}" for number in range(5)]
# So that there is an order to be kept.
MOSTLY_NORMAL = st.sampled_from(["normal", "normal", "normal", "high", "low"])


class ModelTask:
    def __init__(self, priority: Priority, state: str) -> None:
        self.priority, self.state = priority, state
        self.failures = self.crashes = 0
        self.delivery: Delivery | None = None


class QueueMachine(RuleBasedStateMachine):
    """`tasks` is what should be on the server; `lists` the order of what waits, the next one last."""

    server_url: ClassVar[str]
    loop: ClassVar[asyncio.AbstractEventLoop]
    k: ClassVar[Kizuna]

    def __init__(self) -> None:
        super().__init__()
        # The store is the same for all; each example has a group of its own, and names of its own within it.
        self.mark = secrets.token_hex(4)
        self.queue = self.k.queue(f"g-{self.mark}")
        self.tasks: dict[str, ModelTask] = {}
        self.lists: dict[Priority, list[str]] = {priority: [] for priority in PRIORITIES}
        self.late: list[Delivery] = []
        self.paused = False

    deliveries = Bundle("deliveries")

    # -- what is done ---------------------------------------------------------------------------------------

    @rule(id_=st.sampled_from(IDS), priority=MOSTLY_NORMAL, delayed=st.sampled_from([False, False, True]))
    def push(self, id_: str, priority: Priority, delayed: bool) -> None:
        task = self.run(self.queue.push(id_, id=self.name(id_), priority=priority, delay_s=1000 if delayed else 0))
        assert task.known == (id_ in self.tasks)
        if id_ not in self.tasks:
            self.tasks[id_] = ModelTask(priority, "delayed" if delayed else "waiting")
            if not delayed:
                self.lists[priority].insert(0, id_)

    @rule(target=deliveries)
    def take(self) -> Any:
        delivery = self.run(self.queue.pop(lease_s=1000))
        expected = self.next_one()
        if expected is None:
            assert delivery is None
            return multiple()
        assert delivery is not None
        assert (delivery.id, delivery.payload) == (self.name(expected), expected)
        task = self.tasks[expected]
        assert delivery.attempt == 1 + task.failures + task.crashes
        self.lists[task.priority].remove(expected)
        task.state, task.delivery = "running", delivery
        return delivery

    @rule(delivery=deliveries)
    def finish(self, delivery: Delivery) -> None:
        if self.settled(delivery, delivery.done("result")):
            self.task_of(delivery).state = "done"

    @rule(delivery=deliveries, retry=st.booleans())
    def fail(self, delivery: Delivery, retry: bool) -> None:
        if self.settled(delivery, delivery.fail("reason", retry=retry)):
            task = self.task_of(delivery)
            task.failures += 1
            task.state = "delayed" if retry and task.failures < ATTEMPTS else "dead"

    @rule(delivery=deliveries)
    def release(self, delivery: Delivery) -> None:
        if self.settled(delivery, delivery.release()):
            self.returned(delivery)

    @rule(delivery=deliveries)
    def progress(self, delivery: Delivery) -> None:
        if self.is_ours(delivery):
            self.run(delivery.progress(0.5, "half"))
        else:
            with pytest.raises(LeaseLost):
                self.run(delivery.progress(0.5))

    @rule(delivery=deliveries, died=st.booleans())
    def lose(self, delivery: Delivery, died: bool) -> None:
        """The lease of its consumer ends, and somebody notices."""
        keys, was_ours = self.queue._keys, self.is_ours(delivery)
        if not died:
            self.call("ZADD", keys.consumers, "XX", 1, delivery.holder.id)
        why: Why = "died" if died else "lapsed"
        assert self.run(give_back(self.k.store, keys, delivery.holder.id, why)) == int(was_ours)
        if was_ours:
            task = self.task_of(delivery)
            task.crashes, task.delivery = task.crashes + 1, None
            if task.crashes >= CRASHES:
                task.state = "dead"
            else:
                self.returned(delivery)

    @rule(id_=st.sampled_from(IDS))
    def cancel(self, id_: str) -> None:
        task = self.tasks.get(id_)
        if task is None:
            with pytest.raises(TaskUnknown):
                self.run(self.queue.cancel(self.name(id_)))
            return
        can_be = task.state in ("waiting", "delayed", "running")
        assert self.run(self.queue.cancel(self.name(id_))) == can_be
        if can_be:
            if task.state == "waiting":
                self.lists[task.priority].remove(id_)
            task.state, task.delivery = "cancelled", None

    @rule(id_=st.sampled_from(IDS))
    def come_due(self, id_: str) -> None:
        task = self.tasks.get(id_)
        if task is not None and task.state == "delayed":
            self.call("ZADD", self.queue._keys.delayed, "XX", 1, self.name(id_))
            # Whoever asks first, also in vain, lets it wait in its queue.
            self.run(self.queue.pause())
            assert self.run(self.queue.pop()) is None
            if not self.paused:
                self.run(self.queue.resume())
            task.state = "waiting"
            self.lists[task.priority].insert(0, id_)

    @rule()
    def requeue_all(self) -> None:
        dead = [id_ for id_, task in self.tasks.items() if task.state == "dead"]
        for id_ in dead:
            assert self.run(self.queue.requeue(self.name(id_))) == 1
            task = self.tasks[id_]
            task.state, task.failures, task.crashes = "waiting", 0, 0
            self.lists[task.priority].insert(0, id_)
        assert self.run(self.queue.requeue()) == 0

    @precondition(lambda self: not self.paused)
    @rule()
    def pause(self) -> None:
        self.run(self.queue.pause())
        self.paused = True

    @precondition(lambda self: self.paused)
    @rule()
    def resume(self) -> None:
        assert self.run(self.queue.resume())
        self.paused = False

    # -- what is true all the time ----------------------------------------------------------------------------

    @invariant()
    def every_task_is_in_one_state(self) -> None:
        for id_, task in self.tasks.items():
            status = self.run(self.queue.status(self.name(id_)))
            assert status.state == task.state
            if task.state not in ("done", "cancelled"):
                assert (status.failures, status.crashes) == (task.failures, task.crashes)

    @invariant()
    def the_figures_agree(self) -> None:
        depth = self.run(self.queue.depth())
        states = [task.state for task in self.tasks.values()]
        assert [depth.high, depth.normal, depth.low] == [len(self.lists[priority]) for priority in PRIORITIES]
        assert (depth.delayed, depth.running, depth.dead) == tuple(map(states.count, ("delayed", "running", "dead")))
        assert len(self.run(self.queue.consumers())) == states.count("running")

    def teardown(self) -> None:
        keys = self.call("KEYS", f"model:*{self.mark}*")
        if keys:
            self.call("DEL", *keys)
        self.call("SREM", self.queue._keys.groups, self.queue.group)

    # -- inside -----------------------------------------------------------------------------------------------

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    def call(self, *command: Any) -> Any:
        async def send() -> Any:
            return await self.k.store.call(*command)

        return self.run(send())

    def name(self, id_: str) -> str:
        return f"{id_}-{self.mark}"

    def task_of(self, delivery: Delivery) -> ModelTask:
        return self.tasks[delivery.id.removesuffix(f"-{self.mark}")]

    def is_ours(self, delivery: Delivery) -> bool:
        return self.task_of(delivery).delivery is delivery

    def next_one(self) -> str | None:
        if self.paused:
            return None
        # The shares are 0 here: they have a test of their own.
        return next((self.lists[priority][-1] for priority in PRIORITIES if self.lists[priority]), None)

    def settled(self, delivery: Delivery, work: Coroutine[Any, Any, Any]) -> bool:
        """False if it was not ours any more, and we were told so."""
        if not self.is_ours(delivery):
            with pytest.raises(LeaseLost):
                self.run(work)
            return False
        self.run(work)
        self.task_of(delivery).delivery = None
        return True

    def returned(self, delivery: Delivery) -> None:
        task = self.task_of(delivery)
        task.state = "waiting"
        self.lists[task.priority].append(delivery.id.removesuffix(f"-{self.mark}"))


def test_a_queue_does_what_its_model_does(server: ServerProcess) -> None:
    queues = QueuesSettings(normal_share=0, low_share=0, retry_first_s=1000, retry_longest_s=1000)
    roots = RootsSettings(system="model", coordination="model")
    with asyncio.Runner() as runner:
        QueueMachine.loop = runner.get_loop()
        QueueMachine.k = runner.run(open_(Settings(store=StoreSettings(url=server.url), roots=roots, queues=queues)))
        try:
            QueueMachine.TestCase.settings = settings(
                max_examples=30, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
            )
            QueueMachine.TestCase("runTest").runTest()
        finally:
            runner.run(QueueMachine.k.aclose())


async def open_(settings: Settings) -> Kizuna:
    return await connect(settings)
