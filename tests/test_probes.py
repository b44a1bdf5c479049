from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kizuna._version import __version__
from kizuna.errors import CannotListen
from kizuna.http import BadRequest, parse_request
from kizuna.metrics import Measure, Metrics
from kizuna.probes import MOST_CONNECTIONS, Probes
from kizuna.service import running
from kizuna.settings import ProbesSettings
from kizuna.testing.services import assert_starts_and_stops
from kizuna.testing.waiting import eventually

ANY_PORT = ProbesSettings(port=0)


class Process:
    """What probes look at: a test changes it."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.metrics = Metrics(lambda: [Measure("counter", "kizuna_tests_total", "Tests run.", 3)])
        self.hangs = False
        self.breaks = False

    async def ready(self) -> list[str]:
        if self.breaks:
            raise ZeroDivisionError
        if self.hangs:
            await asyncio.Event().wait()
        return self.problems

    async def page(self, accept: str) -> tuple[bytes, str]:
        return self.metrics.page(accept)

    def probes(self, *, deadline_s: float = 5.0) -> Probes:
        return Probes(ANY_PORT, self.ready, self.page, deadline_s=deadline_s)


@pytest.fixture
def process() -> Process:
    return Process()


@pytest.fixture
async def probes(process: Process) -> AsyncIterator[Probes]:
    probes = process.probes()
    async with running(probes):
        yield probes


Answer = tuple[int, dict[str, str], bytes]


@asynccontextmanager
async def connected(probes: Probes) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    host, _, port = probes.url.removeprefix("http://").rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def read_answer(reader: asyncio.StreamReader, *, head: bool = False) -> Answer:
    first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")[:-2]
    headers = dict(line.split(": ", 1) for line in lines)
    body = b"" if head else await reader.readexactly(int(headers["Content-Length"]))
    return int(first.split()[1]), headers, body


async def ask(probes: Probes, request: bytes) -> Answer:
    async with connected(probes) as (reader, writer):
        writer.write(request)
        return await read_answer(reader, head=request.startswith(b"HEAD"))


async def get(probes: Probes, path: str, *headers: str) -> Answer:
    lines = [f"GET {path} HTTP/1.1", "Host: test", *headers, "", ""]
    return await ask(probes, "\r\n".join(lines).encode())


# what is answered


async def test_a_living_process_is_healthy_even_if_it_is_not_ready(process: Process, probes: Probes) -> None:
    process.problems = ["the server is away"]

    status, headers, body = await get(probes, "/healthz")

    assert (status, json.loads(body)) == (200, {"status": "alive"})
    assert headers["Content-Type"] == "application/json"
    assert headers["Cache-Control"] == "no-store"


async def test_readiness_names_every_problem(process: Process, probes: Probes) -> None:
    assert (await get(probes, "/readyz"))[0] == 200

    process.problems = ["the server is away", "nothing is heard of changes"]
    status, _, body = await get(probes, "/readyz")

    assert status == 503
    assert json.loads(body) == {"status": "not ready", "problems": process.problems}


async def test_metrics_are_in_the_format_that_is_asked_for(probes: Probes) -> None:
    status, headers, body = await get(probes, "/metrics")
    _, open_headers, open_body = await get(probes, "/metrics", "Accept: application/openmetrics-text; version=1.0.0")

    assert status == 200
    assert headers["Content-Type"].startswith("text/plain")
    assert b"# TYPE kizuna_tests_total counter\nkizuna_tests_total 3.0\n" in body
    assert b'kizuna_build_info{python="' in body
    assert f'version="{__version__}"'.encode() in body
    assert open_headers["Content-Type"].startswith("application/openmetrics-text")
    assert open_body.endswith(b"# EOF\n")


async def test_version_says_what_runs(probes: Probes) -> None:
    assert json.loads((await get(probes, "/version?full"))[2])["kizuna"] == __version__


async def test_head_has_the_headers_of_get_and_no_body(probes: Probes) -> None:
    _, expected, _ = await get(probes, "/healthz")

    async with connected(probes) as (reader, writer):
        writer.write(b"HEAD /healthz HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n")
        status, headers, _ = await read_answer(reader, head=True)

        assert status == 200
        assert headers["Content-Length"] == expected["Content-Length"]
        assert await reader.read() == b""


async def test_several_requests_use_one_connection_until_one_of_them_closes_it(probes: Probes) -> None:
    one = b"GET /healthz HTTP/1.1\r\nHost: test\r\n\r\n"
    async with connected(probes) as (reader, writer):
        writer.write(one + one)
        assert (await read_answer(reader))[1]["Connection"] == "keep-alive"
        assert (await read_answer(reader))[1]["Connection"] == "keep-alive"

        writer.write(one.replace(b"\r\n\r\n", b"\r\nConnection: Close\r\n\r\n"))
        assert (await read_answer(reader))[1]["Connection"] == "close"
        assert await reader.read() == b""


async def test_a_client_of_http_1_0_needs_no_host_and_gets_one_answer(probes: Probes) -> None:
    async with connected(probes) as (reader, writer):
        writer.write(b"GET /healthz HTTP/1.0\r\n\r\n")
        status, headers, _ = await read_answer(reader)

        assert (status, headers["Connection"]) == (200, "close")
        assert await reader.read() == b""


# what is refused


@pytest.mark.parametrize(
    ("request_", "status", "word"),
    [
        (b"GET /nothing HTTP/1.1\r\nHost: t\r\n\r\n", 404, "/nothing"),
        (b"POST /readyz HTTP/1.1\r\nHost: t\r\n\r\n", 405, "POST"),
        (b"POST /readyz HTTP/1.1\r\nHost: t\r\nContent-Length: 3\r\n\r\nabc", 400, "body"),
        (b"GET /readyz HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400, "body"),
        (b"GET /readyz HTTP/1.1\r\n\r\n", 400, "Host"),
        (b"GET /readyz\r\n\r\n", 400, "first line"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400, "first line"),
        (b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", 400, "first line"),
        (b"GET http://[ HTTP/1.1\r\nHost: t\r\n\r\n", 400, "target"),
        (b"GET /readyz HTTP/1.1\r\nHost: t\r\nno header\r\n\r\n", 400, "Name: value"),
        (b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\nHost: t\r\n\r\n", 431, "8192 bytes"),
        (b"GET /readyz HTTP/1.1\r\nHost: t\r\n" + b"A: b\r\n" * 20_000, 431, "8192 bytes"),
    ],
)
async def test_other_requests_are_refused_with_a_reason(
    probes: Probes, request_: bytes, status: int, word: str
) -> None:
    found, _, body = await ask(probes, request_)

    assert found == status
    assert word in json.loads(body)["error"]
    assert (await get(probes, "/healthz"))[0] == 200


async def test_a_method_that_is_not_allowed_is_told_which_are(probes: Probes) -> None:
    assert (await ask(probes, b"DELETE /healthz HTTP/1.1\r\nHost: t\r\n\r\n"))[1]["Allow"] == "GET, HEAD"


@given(header=st.binary(max_size=200))
def test_any_bytes_are_a_request_or_refused(header: bytes) -> None:
    with contextlib.suppress(BadRequest):
        assert parse_request(header).method


async def test_an_address_that_is_taken_is_named_with_the_setting_that_changes_it(process: Process) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        settings = ProbesSettings(port=port)

        with pytest.raises(CannotListen) as refused:
            await Probes(settings, process.ready, process.page).run(asyncio.Event())

    assert str(refused.value) == (
        f"cannot listen on 127.0.0.1:{port} (Address already in use);"
        " set probes.host and probes.port to what is free, as port 0 always is"
    )


async def test_a_host_that_can_have_no_address_is_a_clear_error(process: Process) -> None:
    settings = ProbesSettings(host="a" * 64, port=0)

    with pytest.raises(CannotListen, match=r"a:0 \(there is no such host\); set probes.host"):
        await Probes(settings, process.ready, process.page).run(asyncio.Event())


# who behaves badly


async def test_a_slow_request_is_told_so_and_a_silent_client_just_leaves(process: Process) -> None:
    probes = process.probes(deadline_s=0.1)
    async with running(probes), connected(probes) as (reader, writer), connected(probes) as (silent, _):
        writer.write(b"GET /healthz HTTP/1.1\r\nHo")
        status, headers, body = await read_answer(reader)

        assert (status, headers["Connection"]) == (408, "close")
        assert json.loads(body) == {"error": "no whole request came within 0.1s"}
        assert await silent.read() == b""


async def test_connections_that_ask_nothing_do_not_keep_others_out(probes: Probes) -> None:
    held = [connected(probes) for _ in range(2 * MOST_CONNECTIONS)]
    try:
        for connection in held:
            _, writer = await connection.__aenter__()
            writer.write(b"GET /healthz HTTP/1.1\r\nX-Slow: ")

        assert (await asyncio.wait_for(get(probes, "/healthz"), 20))[0] == 200
    finally:
        for connection in held:
            await connection.__aexit__(None, None, None)


async def test_a_client_that_never_reads_costs_one_connection_and_no_more(process: Process) -> None:
    probes = process.probes(deadline_s=0.2)
    request = b"GET /metrics HTTP/1.1\r\nHost: t\r\n\r\n"
    async with running(probes), connected(probes) as (reader, writer):
        reader._transport.pause_reading()  # type: ignore[attr-defined]

        async def cut_off() -> bool:
            writer.write(request * 100)
            return writer.transport.is_closing()

        await eventually(cut_off, within_s=30)
        assert (await get(probes, "/healthz"))[0] == 200


async def test_a_client_that_goes_away_in_the_middle_is_forgotten(probes: Probes) -> None:
    async with connected(probes) as (_, writer):
        writer.write(b"GET /healthz HTTP/1.1\r\n")
        await eventually(lambda: len(probes._connections) == 1)

    await eventually(lambda: not probes._connections)


async def test_a_check_that_hangs_is_cut_off_and_one_that_breaks_is_logged(
    process: Process, caplog: pytest.LogCaptureFixture
) -> None:
    probes = process.probes(deadline_s=0.1)
    async with running(probes):
        process.hangs = True
        status, _, body = await get(probes, "/readyz")
        assert (status, json.loads(body)) == (503, {"error": "no answer within 0.1s"})

        process.breaks = True
        status, _, body = await get(probes, "/readyz")
        assert (status, json.loads(body)["error"]) == (500, "ZeroDivisionError; the log of this process has the rest")

    assert [record.message for record in caplog.records if record.exc_info] == ["probe failed"]


# starting and stopping


async def test_it_starts_and_stops_fifty_times(process: Process) -> None:
    last: list[Probes] = []

    def make() -> Probes:
        last[:] = [process.probes()]
        return last[0]

    async def works() -> bool:
        return (await get(last[0], "/healthz"))[0] == 200

    await assert_starts_and_stops(make, check_working=works)


async def test_open_connections_do_not_hold_up_the_stop(process: Process) -> None:
    probes = process.probes()
    async with connected_while_running(probes) as reader:
        pass

    assert await reader.read() == b""


@asynccontextmanager
async def connected_while_running(probes: Probes) -> AsyncIterator[asyncio.StreamReader]:
    async with asyncio.timeout(20), running(probes):
        host, _, port = probes.url.removeprefix("http://").rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: test\r\n\r\n")
        await read_answer(reader)
        yield reader
    writer.transport.abort()
