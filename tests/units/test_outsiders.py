"""Whoever has a connection to the server can ask and answer, with plain commands; and nothing they write confuses."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import Any

import pytest

from kizuna.app import Kizuna
from kizuna.codecs import TEXT
from kizuna.coordination.handlers import Failed
from kizuna.errors import RequestFailed, RequestTimeout
from kizuna.settings import RootsSettings, Settings, StoreSettings
from kizuna.store.keys import LONGEST_NAME
from kizuna.testing import ServerProcess, eventually
from kizuna.testing.resp import Conversation
from kizuna.units.executions import Request
from kizuna.units.listening import Message
from kizuna.units.unit import Unit

OUTSIDERS = Path(__file__).with_name("outsiders.py")
Run = Callable[..., subprocess.Popen[str]]


@pytest.fixture(scope="module")
def wild() -> Iterator[ServerProcess]:
    """A server of these tests' own: outsiders may leave there what they like."""
    with ServerProcess(config={"notify-keyspace-events": "AKE"}) as server:
        yield server


@pytest.fixture
def settings(wild: ServerProcess, root: str) -> Settings:
    roots = RootsSettings(system=root, coordination=root, units=root)
    return Settings(store=StoreSettings(url=wild.url), roots=roots)


@pytest.fixture
def outsider(wild: ServerProcess) -> Iterator[Conversation]:
    with wild.connect() as conversation:
        yield conversation


@pytest.fixture
def run() -> Iterator[Run]:
    """Start a program of outsiders.py; none outlives the test."""
    with ExitStack() as cleanup:

        def run(*arguments: str) -> subprocess.Popen[str]:
            line = [sys.executable, str(OUTSIDERS), *arguments]
            process = cleanup.enter_context(subprocess.Popen(line, stdout=subprocess.PIPE, text=True))
            cleanup.callback(process.kill)
            return process

        yield run


async def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return (await asyncio.to_thread(process.stdout.readline)).strip()


def upper(data: bytes) -> bytes:
    if data.startswith(b"fail"):
        raise Failed(f"no: {data.decode()}")
    return data.upper()


class Desk:
    """A unit that serves all requests below the root, with what it has served; and whoever asks it."""

    def __init__(self, k: Kizuna, root: str) -> None:
        self.root = root
        self.unit, self._asking = k.unit("desk"), k.unit("insider")
        self.served: list[str] = []

    async def handle(self, data: bytes, request: Request) -> bytes:
        self.served.append(request.path)
        return upper(data)

    async def serves_on(self) -> None:
        """What was announced before this is asked has been heard when it is answered: events come in order."""
        assert await self._asking.request(None, b"are you there?", timeout_s=30) == b"ARE YOU THERE?"
        self.served = [path for path in self.served if not path.startswith(f"{self.root}/insider/")]

    async def is_open(self) -> AsyncExitStack:
        stack = AsyncExitStack()
        await stack.enter_async_context(self.unit.serving(self.handle, pattern=f"{self.root}/*/req/*"))
        return stack


@pytest.fixture
async def desk(k: Kizuna, root: str) -> AsyncIterator[Desk]:
    desk = Desk(k, root)
    async with await desk.is_open():
        yield desk


def answers(outsider: Conversation, root: str) -> set[bytes]:
    """All that was written as one, but to the insider."""
    written = [key for key in outsider.call("KEYS", "*") if root.encode() in key.lower() and b"/insider/" not in key]
    return {key for key in written if b"/res" in key.lower() or b"/err" in key.lower()}


# -- plain commands -----------------------------------------------------------------------------------------


async def test_a_plain_set_is_answered_below_the_name_of_who_asked(
    desk: Desk, outsider: Conversation, root: str
) -> None:
    outsider.call("SET", f"{root}/unit_a/req/42", "hello", "EX", 10)

    assert await eventually(lambda: outsider.call("GET", f"{root}/unit_a/res/42")) == b"HELLO"
    assert 50_000 < outsider.call("PTTL", f"{root}/unit_a/res/42") <= 60_000
    assert outsider.call("GET", f"{root}/unit_a/req/42") == b"hello"


async def test_what_goes_wrong_is_answered_below_err(desk: Desk, outsider: Conversation, root: str) -> None:
    outsider.call("SET", f"{root}/unit_a/req/42", "fail please", "EX", 10)

    assert await eventually(lambda: outsider.call("GET", f"{root}/unit_a/err/42")) == b"no: fail please"
    assert 50_000 < outsider.call("PTTL", f"{root}/unit_a/err/42") <= 60_000
    assert outsider.call("EXISTS", f"{root}/unit_a/res/42") == 0


async def test_who_listens_to_all_hears_a_plain_set_and_can_answer_it(
    k: Kizuna, outsider: Conversation, root: str
) -> None:
    unit = k.unit("listener", codec=TEXT)

    async def answer(message: Message) -> None:
        await (message.fail("not you") if message.unit == "unit_b" else message.reply(f"{message.data} to you"))

    listening = asyncio.ensure_future(unit.listen(f"{root}/*/req/*", answer))
    outsider.call("SET", f"{root}/unit_a/req/42", "hello", "EX", 10)
    outsider.call("SET", f"{root}/unit_b/req/42", "hello", "EX", 10)

    assert await eventually(lambda: outsider.call("GET", f"{root}/unit_a/res/42")) == b"hello to you"
    assert await eventually(lambda: outsider.call("GET", f"{root}/unit_b/err/42")) == b"not you"
    listening.cancel()
    await asyncio.wait([listening])


async def test_what_was_asked_before_anybody_served_is_answered(k: Kizuna, outsider: Conversation, root: str) -> None:
    outsider.call("SET", f"{root}/unit_a/req/42", "early", "EX", 10)

    async with await Desk(k, root).is_open():
        assert await eventually(lambda: outsider.call("GET", f"{root}/unit_a/res/42")) == b"EARLY"


async def test_one_unit_is_asked_by_its_name_and_a_dot(k: Kizuna, outsider: Conversation, root: str) -> None:
    async with k.unit("detector").serving(upper), k.unit("other").serving(lambda _: b"not for me"):
        outsider.call("SET", f"{root}/unit_a/req/detector.1", "hello", "EX", 10)
        # A name with dots is none that can be called, but it can call.
        outsider.call("SET", f"{root}/camera.front.left/req/detector.1.2", "dots", "EX", 10)

        assert await eventually(lambda: outsider.call("GET", f"{root}/unit_a/res/detector.1")) == b"HELLO"
        assert await eventually(lambda: outsider.call("GET", f"{root}/camera.front.left/res/detector.1.2")) == b"DOTS"


async def test_names_with_dots_that_read_alike_are_not_mistaken_for_each_other(
    desk: Desk, outsider: Conversation, root: str
) -> None:
    outsider.call("SET", f"{root}/a.b/req/c", "one", "EX", 10)
    outsider.call("SET", f"{root}/a/req/b.c", "two", "EX", 10)

    assert await eventually(lambda: outsider.call("GET", f"{root}/a.b/res/c")) == b"ONE"
    assert await eventually(lambda: outsider.call("GET", f"{root}/a/res/b.c")) == b"TWO"


async def test_a_request_without_an_end_is_answered_once(desk: Desk, outsider: Conversation, root: str) -> None:
    outsider.call("SET", f"{root}/unit_a/req/42", "for ever")
    assert await eventually(lambda: outsider.call("GET", f"{root}/unit_a/res/42")) == b"FOR EVER"

    before = desk.unit._units.counts_of("desk").resyncs
    outsider.call("CLIENT", "KILL", "TYPE", "pubsub")
    await eventually(lambda: desk.unit._units.counts_of("desk").resyncs > before)
    await desk.serves_on()
    # Nor is it when the answer has ended.
    outsider.call("DEL", f"{root}/unit_a/res/42")
    before = desk.unit._units.counts_of("desk").resyncs
    outsider.call("CLIENT", "KILL", "TYPE", "pubsub")
    await eventually(lambda: desk.unit._units.counts_of("desk").resyncs > before)
    await desk.serves_on()

    assert desk.served == [f"{root}/unit_a/req/42"]
    assert answers(outsider, root) == set()


async def test_a_value_of_no_bytes_is_a_request(desk: Desk, outsider: Conversation, root: str) -> None:
    outsider.call("SET", f"{root}/unit_a/req/42", "", "EX", 10)

    assert await eventually(lambda: outsider.call("EXISTS", f"{root}/unit_a/res/42"))
    assert outsider.call("GET", f"{root}/unit_a/res/42") == b""


@pytest.mark.parametrize("status", ["res", "err"])
async def test_a_value_of_no_bytes_is_an_answer(k: Kizuna, outsider: Conversation, root: str, status: str) -> None:
    asking = asyncio.create_task(outcome(k.unit("camera"), 1))
    await eventually(lambda: outsider.call("EXISTS", f"{root}/camera/req/outsider.1"))
    outsider.call("SET", f"{root}/camera/{status}/outsider.1", "", "EX", 60)

    assert await asking == b""
    counts = k.units.counts_of("camera")
    assert (counts.replies, counts.errors) == ((1, 0) if status == "res" else (0, 1))


# -- scripts that follow the specification ------------------------------------------------------------------


async def test_a_script_that_knows_nothing_of_us_answers_our_requests(
    k: Kizuna, run: Run, wild: ServerProcess, root: str
) -> None:
    assert await first_line(run("answer", wild.url, root)) == "ready"
    unit = k.unit("Camera")

    assert await unit.request(None, b"hello") == b"HELLO"
    assert await unit.request("someone", b"hello") == b"HELLO"
    with pytest.raises(RequestFailed) as failed:
        await unit.request("someone", b"fail")
    assert failed.value.body == b"no: fail"
    many = [unit.request("someone", b"%d a" % number) for number in range(100)]
    assert await asyncio.gather(*many) == [b"%d A" % number for number in range(100)]


async def test_a_script_that_knows_nothing_of_us_gets_our_answers(
    desk: Desk, run: Run, wild: ServerProcess, root: str
) -> None:
    asks = [("ask", wild.url, root, "Unit_A", "42", "hello"), ("ask", wild.url, root, "Unit_A", "43", "fail")]
    lines = await asyncio.gather(*(first_line(run(*ask)) for ask in asks))

    assert lines == ["reply HELLO", "error no: fail"]


async def test_ours_and_others_serve_side_by_side(
    desk: Desk, k: Kizuna, run: Run, wild: ServerProcess, root: str
) -> None:
    """Others know no claims, so a request may be answered twice: with the same here, and it is taken once."""
    assert await first_line(run("answer", wild.url, root)) == "ready"
    asking = first_line(run("ask", wild.url, root, "unit_a", "42", "hello"))
    many = [k.unit("camera").request(None, b"%d a" % number) for number in range(100)]

    assert await asyncio.gather(*many) == [b"%d A" % number for number in range(100)]
    assert await asking == "reply HELLO"
    await desk.serves_on()
    counts = k.units.counts_of("camera")
    assert (counts.replies, counts.errors, counts.timeouts) == (100, 0, 0)


# -- what must confuse nobody -------------------------------------------------------------------------------

Write = Callable[[Conversation, str], object]


def setting(*keys: str | bytes) -> Write:
    """Sets these keys, with {root} in them for the root."""

    def write(outsider: Conversation, root: str) -> None:
        for key in keys:
            raw = key if isinstance(key, bytes) else key.encode()
            outsider.call("SET", raw.replace(b"{root}", root.encode()), "hello", "EX", 10)

    return write


def calling(*commands: tuple[Any, ...]) -> Write:
    """Runs these commands, as one transaction."""

    def write(outsider: Conversation, root: str) -> None:
        outsider.call("MULTI")
        for command in commands:
            outsider.call(*(part.replace("{root}", root) if isinstance(part, str) else part for part in command))
        outsider.call("EXEC")

    return write


REQUEST = "{root}/a/req/1"
CONFUSION: dict[str, Write] = {
    "keys beside the root": setting("{root}", "{root}x/a/req/1", "x{root}/a/req/1", "x/{root}/a/req/1"),
    "keys of others below it": setting("{root}/", "{root}/a", "{root}/a/req", "{root}:a:req:1", "{root}/a/foo/1"),
    "too many parts": setting("{root}/a/req/1/2", "{root}/a/b/req/1", "{root}/a/req/1/", "/{root}/a/req/1"),
    "empty parts": setting("{root}//req/1", "{root}/a//1", "{root}/a/req/", "{root}//req/", "//req/"),
    "blanks and signs": setting("{root}/a b/req/1", "{root}/a/req/1\n", "{root}/a/req/*", "{root}/{a}/req/1"),
    "names that are too long": setting("{root}/" + "a" * (LONGEST_NAME + 1) + "/req/1"),
    "ids that are too long": setting("{root}/a/req/" + "1" * (LONGEST_NAME + 1)),
    "keys that are no UTF-8": setting(b"{root}/a/req/\xff\xfe", b"{root}/\xc3/req/1", b"\xff{root}/a/req/1"),
    "another status in upper case": setting("{root}/Unit_A/REQ/42", "{root}/unit_a/Req/42"),
    "the root in upper case": lambda outsider, root: setting(f"{root.upper()}/unit_a/req/42")(outsider, root),
    "a hash": calling(("HSET", REQUEST, "f", "v")),
    "a list": calling(("RPUSH", REQUEST, "v")),
    "what was deleted before it is read": calling(("SET", REQUEST, "x"), ("DEL", REQUEST)),
    "what has ended before it is read": calling(("SET", REQUEST, "x", "PX", 1), ("PEXPIRE", REQUEST, -1)),
    "what is a hash before it is read": calling(("SET", REQUEST, "x"), ("DEL", REQUEST), ("HSET", REQUEST, "f", "v")),
    "a request that was renamed away": calling(("SET", REQUEST, "x"), ("RENAME", REQUEST, "x-{root}")),
    "something renamed to a request": calling(("SET", "x-{root}", "x"), ("RENAME", "x-{root}", REQUEST)),
    "a claim": calling(("SET", "{root}/desk/keep/claim.a.1", "somebody")),
    "answers that nobody asked for": calling(("SET", "{root}/insider/res/1", "x"), ("SET", "{root}/insider/err/1", "")),
    "forged events": calling(
        ("PUBLISH", "__keyspace@0__:" + REQUEST, "set"),
        ("PUBLISH", "__keyspace@0__:" + REQUEST, ""),
        ("PUBLISH", "__keyspace@0__:{root}/insider/res/1", "set"),
        ("PUBLISH", "__keyspace@0__:{root}//req/", "set"),
        ("PUBLISH", "__keyspace@0__:", "set"),
    ),
}


@pytest.mark.parametrize("write", CONFUSION.values(), ids=CONFUSION.keys())
async def test_what_is_no_request_is_not_answered_and_all_goes_on(
    desk: Desk, outsider: Conversation, root: str, write: Write
) -> None:
    write(outsider, root)
    await desk.serves_on()

    assert desk.served == []
    assert answers(outsider, root) == set()


@pytest.mark.parametrize("write", CONFUSION.values(), ids=CONFUSION.keys())
async def test_nor_is_it_when_it_was_there_before(k: Kizuna, outsider: Conversation, root: str, write: Write) -> None:
    write(outsider, root)
    # That one is a request by now, however it came to be.
    expected = [f"{root}/a/req/1"] if outsider.call("TYPE", f"{root}/a/req/1") == b"string" else []
    desk = Desk(k, root)
    async with await desk.is_open():
        await desk.serves_on()
        await eventually(lambda: desk.served == expected)

    assert len(answers(outsider, root)) == len(expected)


@pytest.mark.parametrize("write", CONFUSION.values(), ids=CONFUSION.keys())
async def test_nor_does_it_confuse_who_listens(k: Kizuna, outsider: Conversation, root: str, write: Write) -> None:
    unit = k.unit("listener")
    async with unit.listen(f"{root}/*/*/*") as messages:
        write(outsider, root)
        outsider.call("SET", f"{root}/unit_a/keep/42", "the last one", "EX", 10)
        heard: list[Message] = []
        while not heard or heard[-1].raw != b"the last one":
            message = await messages.next(timeout_s=30)
            assert message is not None
            heard.append(message)

    legal = {"keep", "res", "err", "req"}
    assert all(len(message.path.split("/")) == 4 and message.status in legal for message in heard)
    assert [message.path for message in heard if message.unit == "a"] == []


async def test_events_that_are_not_of_a_set_wake_nobody(desk: Desk, outsider: Conversation, root: str) -> None:
    request = f"{root}/unit_a/req/42"
    outsider.call("SET", request, "hello", "EX", 10)
    await eventually(lambda: outsider.call("EXISTS", f"{root}/unit_a/res/42"))
    outsider.call("DEL", f"{root}/unit_a/res/42", f"{root}/desk/keep/claim.unit_a.42")
    for command in (("EXPIRE", request, 5), ("PERSIST", request), ("APPEND", request, "!"), ("PEXPIRE", request, 1)):
        outsider.call(*command)
    await eventually(lambda: not outsider.call("EXISTS", request))
    await desk.serves_on()

    assert desk.served == [request]
    assert answers(outsider, root) == set()


async def test_upper_case_in_a_name_or_an_id_is_answered_in_lower_case(
    desk: Desk, outsider: Conversation, root: str
) -> None:
    outsider.call("SET", f"{root}/Unit_A/req/Forty-Two", "Hello", "EX", 10)

    assert await eventually(lambda: outsider.call("GET", f"{root}/unit_a/res/forty-two")) == b"HELLO"
    assert answers(outsider, root) == {f"{root}/unit_a/res/forty-two".encode()}


async def test_a_hash_where_the_reply_belongs_does_not_keep_the_reply_from_its_place(
    desk: Desk, k: Kizuna, outsider: Conversation, root: str
) -> None:
    outsider.call("HSET", f"{root}/camera/res/1", "f", "v")
    outsider.call("RPUSH", f"{root}/camera/err/1", "v")

    assert await k.unit("camera").request(None, b"hello", id="1") == b"HELLO"


async def test_a_reply_that_is_a_hash_is_none_and_the_next_one_is_taken(
    k: Kizuna, outsider: Conversation, root: str
) -> None:
    asking = asyncio.create_task(k.unit("camera").request("outsider", b"hello", id="1"))
    await eventually(lambda: outsider.call("EXISTS", f"{root}/camera/req/outsider.1"))
    reply = f"{root}/camera/res/outsider.1"
    calling(("SET", reply, ""), ("DEL", reply), ("HSET", reply, "f", "v"))(outsider, root)
    outsider.call("PUBLISH", f"__keyspace@0__:{reply}", "set")
    outsider.call("SET", reply, "at last", "EX", 60)

    assert await asking == b"at last"


async def test_a_forged_event_is_no_reply(k: Kizuna, outsider: Conversation, root: str) -> None:
    asking = asyncio.create_task(k.unit("camera").request("outsider", b"hello", id="1", timeout_s=2))
    await eventually(lambda: outsider.call("EXISTS", f"{root}/camera/req/outsider.1"))
    for status in ("res", "err"):
        outsider.call("PUBLISH", f"__keyspace@0__:{root}/camera/{status}/outsider.1", "set")

    with pytest.raises(RequestTimeout) as timeout:
        await asking
    assert timeout.value.claimed is False


async def test_an_outsider_that_answers_twice_and_both_ways_is_taken_at_one_word(
    k: Kizuna, outsider: Conversation, root: str
) -> None:
    camera = k.unit("camera")
    for number in range(20):
        asking = asyncio.create_task(outcome(camera, number))
        await eventually(lambda: outsider.call("EXISTS", f"{root}/camera/req/outsider.{number}"))  # noqa: B023
        for status, value in (("res", "one"), ("err", "two"), ("res", "three"), ("err", "four")):
            outsider.call("SET", f"{root}/camera/{status}/outsider.{number}", value, "EX", 60)
        assert await asking in (b"one", b"two", b"three", b"four")
    counts = k.units.counts_of("camera")

    assert counts.replies + counts.errors == counts.requests == 20
    assert counts.timeouts == 0


async def outcome(unit: Unit, number: int) -> Any:
    try:
        return await unit.request("outsider", b"hello", id=f"{number}")
    except RequestFailed as failed:
        return failed.body


async def test_an_answer_that_comes_too_late_disturbs_nobody(k: Kizuna, outsider: Conversation, root: str) -> None:
    camera = k.unit("camera")
    with pytest.raises(RequestTimeout):
        await camera.request("outsider", b"hello", id="1", timeout_s=0.05)
    outsider.call("SET", f"{root}/camera/res/outsider.1", "late", "EX", 60)
    asking = asyncio.create_task(camera.request("outsider", b"hello", id="2"))
    await eventually(lambda: outsider.call("EXISTS", f"{root}/camera/req/outsider.2"))
    outsider.call("SET", f"{root}/camera/res/outsider.2", "in time", "EX", 60)

    assert await asking == b"in time"
