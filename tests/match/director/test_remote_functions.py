"""Match functions that others serve, over gRPC and over HTTP, and what can go wrong with them."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager

import grpc
import pytest
from grpc import StatusCode
from tests.match.director.directing import OpenMatch, match_of, matches_of, refusal, same
from tests.match.director.functions import failing, never_ending, proposing

from kizuna.errors import FunctionFailed
from kizuna.listening import address_of
from kizuna.match.director import remote_functions
from kizuna.match.director.channels import Channels
from kizuna.match.director.function_tls import FunctionTls
from kizuna.match.director.rest_functions import run_over_rest
from kizuna.match.openmatch import backend_pb2, matchfunction_pb2_grpc, messages_pb2
from kizuna.settings import MatchSettings
from kizuna.testing import eventually

ANY = messages_pb2.MatchProfile(name="any")
PLAIN = FunctionTls(MatchSettings())


@contextmanager
def reserved_port() -> Iterator[int]:
    """A port that nobody listens on, and that nobody else is given; gRPC, which shares ports, may listen there."""
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]


# over HTTP


async def test_a_function_over_http_is_called_and_its_matches_taken(om: OpenMatch) -> None:
    match = match_of("1", *await om.tickets(2), score=2.5, match_function="über", allocate_gameserver=True)
    om.functions.function = proposing(match)

    fetched = await matches_of(om.fetch(config=om.functions.rest_config))

    assert [same(one, match) for one in fetched] == [True]
    assert await om.waiting() == set()


async def test_what_a_function_over_http_says_when_it_fails_reaches_the_caller(om: OpenMatch) -> None:
    ticket = await om.ticket()
    om.functions.function = failing(match_of("1", ticket))

    code, text = await refusal(matches_of(om.fetch(config=om.functions.rest_config)))

    assert code is StatusCode.UNKNOWN
    assert "my custom error" in text
    assert await om.waiting() == {ticket.id}


@asynccontextmanager
async def answering(raw: bytes) -> AsyncIterator[int]:
    """A server that answers whatever is asked with these bytes; its port."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(raw)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]


async def answered(raw: bytes, *, largest_bytes: int = 1000) -> list[str]:
    async with (
        answering(raw) as port,
        aclosing(run_over_rest("127.0.0.1", port, ANY, largest_bytes)) as proposals,
    ):
        return [proposal.match_id async for proposal in proposals]


LINE = b'{"result":{"proposal":{"match_id":"1","later":true}}}'
CAMEL = b'{"result":{"proposal":{"matchId":"2"}}}'


@pytest.mark.parametrize(
    ("raw", "ids"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s\n%s" % (len(LINE + CAMEL) + 1, LINE, CAMEL), ["1", "2"]),
        (b"HTTP/1.0 200 OK\r\n\r\n%s\n\n%s\n" % (LINE, CAMEL), ["1", "2"]),
        (b"HTTP/1.1 200\r\nTransfer-Encoding: chunked\r\n\r\n%x;x=y\r\n%s\r\n0\r\n\r\n" % (len(LINE), LINE), ["1"]),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", []),
    ],
    ids=["with a length", "until it closes", "in chunks", "nothing"],
)
async def test_an_answer_may_come_in_any_way_that_http_has(raw: bytes, ids: list[str]) -> None:
    assert await answered(raw) == ids


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"", "the answer ended too early"),
        (b"SSH-2.0-OpenSSH\r\n\r\n", "no answer in HTTP"),
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 7\r\n\r\nnothing", "HTTP status 404: nothing"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n" + LINE, "too early"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n", "invalid literal"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n", "invalid literal"),
        (b"HTTP/1.1 200 OK\r\n\r\n{", "Expecting"),
        (b"HTTP/1.1 200 OK\r\n\r\n[]", "no proposal but []"),
        (b'HTTP/1.1 200 OK\r\n\r\n{"result":{"proposal":{"match_id":{}}}}', "match_id"),
        (b'HTTP/1.1 200 OK\r\n\r\n{"error":{"message":"oh no"}}', "oh no"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 200_000, "a line of more than 1000 bytes"),
        (b"HTTP/1.1 200 OK\r\n" + b"x" * 200_000, "a header that does not end"),
        (b'HTTP/1.1 200 OK\r\n\r\n{"result": "\xff"}', "decode"),
    ],
)
async def test_what_is_no_answer_of_a_function_fails_it_and_says_why(raw: bytes, reason: str) -> None:
    with pytest.raises(FunctionFailed) as failed:
        await answered(raw)

    assert reason in str(failed.value)


async def test_a_function_over_http_that_is_not_there_fails() -> None:
    with reserved_port() as port, pytest.raises(FunctionFailed) as failed:
        async with aclosing(run_over_rest("127.0.0.1", port, ANY, 1000)) as proposals:
            await anext(proposals)

    assert failed.value.address == f"127.0.0.1:{port}"


async def test_a_profile_that_json_cannot_say_is_for_grpc(om: OpenMatch) -> None:
    request = backend_pb2.FetchMatchesRequest(config=om.functions.rest_config, profile=ANY)
    request.profile.extensions["odd"].type_url = "type.googleapis.com/somebody.Elses"

    code, text = await refusal(matches_of(om.backend.FetchMatches(request)))

    assert code is StatusCode.UNKNOWN
    assert "call it over gRPC" in text


# over gRPC


async def test_a_function_that_is_not_there_fails_by_its_address(om: OpenMatch) -> None:
    with reserved_port() as port:
        config = backend_pb2.FunctionConfig(host="127.0.0.1", port=port)
        code, text = await refusal(matches_of(om.fetch(config=config)))

    assert code is StatusCode.UNKNOWN
    assert f"127.0.0.1:{port}" in text


async def test_a_function_is_found_again_where_it_was(om: OpenMatch) -> None:
    om.functions.function = proposing(match_of("1"))
    server = grpc.aio.server()
    matchfunction_pb2_grpc.add_MatchFunctionServicer_to_server(om.functions, server)  # type: ignore[no-untyped-call]
    with reserved_port() as port:
        config = backend_pb2.FunctionConfig(host="127.0.0.1", port=port)
        assert (await refusal(matches_of(om.fetch(config=config))))[0] is StatusCode.UNKNOWN
        assert server.add_insecure_port(f"127.0.0.1:{port}") == port
        await server.start()

        async def is_found() -> bool:
            try:
                return len(await matches_of(om.fetch(config=config))) == 1
            except grpc.aio.AioRpcError:
                return False

        try:
            await eventually(is_found, within_s=30)
        finally:
            await server.stop(None)


async def test_a_function_cannot_fill_our_memory(om: OpenMatch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_functions, "LARGEST_ALL", 1000)
    tickets = await om.tickets(30)

    code, text = await refusal(om.fetched(proposing(*(match_of(ticket.id, ticket) for ticket in tickets))))

    assert code is StatusCode.UNKNOWN
    assert "more than 1000 bytes" in text
    assert await om.waiting() == {ticket.id for ticket in tickets}


async def test_what_is_under_way_ends_when_the_connections_are_closed(om: OpenMatch) -> None:
    om.functions.function = never_ending()
    channels = Channels(PLAIN)
    function = remote_functions.RemoteFunctions(channels).at(om.functions.config)

    async def run() -> list[messages_pb2.Match]:
        async with aclosing(function.run(ANY)) as proposals:
            return [proposal async for proposal in proposals]

    running = asyncio.ensure_future(run())
    await eventually(lambda: om.functions.runs == 1, within_s=20)
    await channels.aclose()

    with pytest.raises(FunctionFailed, match="closed"):
        await running


# connections


async def test_one_connection_serves_all_who_call_an_address() -> None:
    channels = Channels(PLAIN)
    with channels.to("127.0.0.1:1") as one, channels.to("127.0.0.1:1") as other:
        assert one is other
    with channels.to("127.0.0.1:1") as again:
        assert again is one
    await channels.aclose()


async def test_connections_that_nobody_uses_any_more_are_closed_once_they_are_many() -> None:
    channels = Channels(PLAIN)
    with channels.to("127.0.0.1:1") as used:
        for port in range(2, 200):
            with channels.to(f"127.0.0.1:{port}"):
                pass
        with channels.to("127.0.0.1:1") as again:
            assert again is used
        assert len(channels) <= 66
    await channels.aclose()
    assert len(channels) == 0


@pytest.mark.parametrize(("host", "address"), [("a.b", "a.b:7"), ("::1", "[::1]:7")])
def test_addresses_read_as_everywhere(host: str, address: str) -> None:
    assert address_of(host, 7) == address
