"""What holds for every call that is served over gRPC, whatever it does."""

from __future__ import annotations

import asyncio
import logging
import re
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
import trustme
from grpc import StatusCode
from tests.match.serving.channels import (
    OWN_CONNECTION,
    channel_to,
    first_of,
    frontend,
    getting,
    named,
    refusal,
    served,
    server_of,
    watching,
)

from kizuna.errors import CannotListen, OutcomeUnknown, PermissionDenied, SettingsError, Unreachable, WrongValue
from kizuna.match.openmatch import frontend_pb2, messages_pb2
from kizuna.match.serving.grpc_server import GrpcServer
from kizuna.metrics import Histogram, Metrics
from kizuna.service import running
from kizuna.settings import MatchSettings
from kizuna.testing.services import assert_starts_and_stops
from kizuna.testing.waiting import eventually

A_TICKET = frontend_pb2.GetTicketRequest(ticket_id="a")
A_WATCH = frontend_pb2.WatchAssignmentsRequest(ticket_id="a")


async def raw(server: GrpcServer, body: bytes, method: str = "GetTicket") -> Any:
    """What is answered to these bytes."""
    async with channel_to(server) as channel:
        return await channel.unary_unary(f"/openmatch.FrontendService/{method}")(body)


async def for_ever(_: Any) -> AsyncIterator[Any]:
    yield frontend_pb2.WatchAssignmentsResponse()
    await asyncio.Event().wait()


# requests


async def test_what_is_no_message_is_refused_and_the_next_call_is_answered() -> None:
    server = server_of(getting(named))
    async with running(server):
        assert await refusal(raw(server, b"\xff\xff\xff")) == (
            StatusCode.INVALID_ARGUMENT,
            "what was sent is no openmatch.GetTicketRequest",
        )
        assert messages_pb2.Ticket.FromString(await raw(server, A_TICKET.SerializeToString())).id == "a"


async def test_what_is_no_message_ends_a_stream_the_same_way() -> None:
    server = server_of(watching(for_ever))
    async with running(server), channel_to(server) as channel:
        stream = channel.unary_stream("/openmatch.FrontendService/WatchAssignments")(b"\x0a\x01\xff")

        told = await refusal(first_of(stream))

    assert told == (StatusCode.INVALID_ARGUMENT, "what was sent is no openmatch.WatchAssignmentsRequest")


async def test_a_message_that_is_too_large_is_refused_and_the_next_is_taken() -> None:
    async with served(getting(named)) as stub:
        code, _ = await refusal(stub.GetTicket(frontend_pb2.GetTicketRequest(ticket_id="a" * 5_000_000)))

        assert code is StatusCode.RESOURCE_EXHAUSTED
        assert (await stub.GetTicket(A_TICKET)).id == "a"


async def test_messages_may_be_as_large_as_is_set() -> None:
    async def measured(request: Any) -> Any:
        return messages_pb2.Ticket(id=str(len(request.ticket_id)))

    async with served(getting(measured), settings=MatchSettings(largest_bytes=8_000_000)) as stub:
        ticket = await stub.GetTicket(frontend_pb2.GetTicketRequest(ticket_id="a" * 8_000_000))

    assert ticket.id == "8000000"


async def test_a_method_that_nobody_has_is_unimplemented() -> None:
    server = server_of(getting(named))
    async with running(server):
        code, _ = await refusal(raw(server, b"", "MakeCoffee"))

    assert code is StatusCode.UNIMPLEMENTED


# errors


async def test_what_nobody_thought_of_is_internal_and_its_number_is_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def broken(_: Any) -> Any:
        raise ZeroDivisionError("the secret formula")

    with caplog.at_level(logging.ERROR, "kizuna.match.serving"):
        async with served(getting(broken)) as stub:
            code, text = await refusal(stub.GetTicket(A_TICKET))

    assert code is StatusCode.INTERNAL
    assert (found := re.fullmatch(r"something went wrong here; the log .*, under ([0-9a-f]{8})", text))
    [record] = caplog.records
    assert vars(record)["incident"] == found[1]
    assert record.exc_info


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Unreachable("nobody answers", "db-7:6379", "start it"), StatusCode.UNAVAILABLE),
        (OutcomeUnknown("the connection broke", "db-7:6379", "look"), StatusCode.UNKNOWN),
        (PermissionDenied("NOPERM of user shop", "db-7:6379", "allow it"), StatusCode.INTERNAL),
    ],
)
async def test_callers_are_not_told_about_our_servers(error: Exception, code: StatusCode) -> None:
    async def failing(_: Any) -> Any:
        raise error

    async with served(getting(failing)) as stub:
        told, text = await refusal(stub.GetTicket(A_TICKET))

    assert told is code
    assert "db-7" not in text
    assert "shop" not in text


async def test_what_is_wrong_with_a_request_is_said_in_full() -> None:
    async def refusing(_: Any) -> Any:
        raise WrongValue("tags", "'ä'", "a list of texts")

    async with served(getting(refusing)) as stub:
        told = await refusal(stub.GetTicket(A_TICKET))

    assert told == (StatusCode.INVALID_ARGUMENT, "tags cannot be 'ä'; expected a list of texts")


# callers who leave


class Long:
    """A call that takes for ever."""

    def __init__(self) -> None:
        self.working, self.ended = asyncio.Event(), asyncio.Event()

    async def __call__(self, _: Any) -> Any:
        self.working.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.ended.set()


async def test_a_caller_who_leaves_ends_the_work() -> None:
    long = Long()
    async with served(getting(long)) as stub:
        call = stub.GetTicket(A_TICKET)
        await asyncio.wait_for(long.working.wait(), 20)
        call.cancel()

        assert await asyncio.wait_for(long.ended.wait(), 20)


async def test_a_deadline_ends_the_work() -> None:
    long = Long()
    async with served(getting(long)) as stub:
        for timeout_s in (0.2, 1, 5, 20):
            code, _ = await refusal(stub.GetTicket(A_TICKET, timeout=timeout_s))
            # On a slow machine it may be over before the work has begun.
            if long.working.is_set():
                break

        await asyncio.wait_for(long.ended.wait(), 20)
    assert code is StatusCode.DEADLINE_EXCEEDED


async def test_a_watcher_who_leaves_ends_its_stream() -> None:
    ended = asyncio.Event()

    async def watched(_: Any) -> AsyncIterator[Any]:
        try:
            yield frontend_pb2.WatchAssignmentsResponse()
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with served(watching(watched)) as stub:
        stream = stub.WatchAssignments(A_WATCH)
        await first_of(stream)
        stream.cancel()

        assert await asyncio.wait_for(ended.wait(), 20)


# counts


async def test_calls_are_counted_by_how_they_ended_and_timed() -> None:
    async def choosy(request: Any) -> Any:
        if request.ticket_id == "bad":
            raise WrongValue("it", "bad", "good")
        return await named(request)

    server = server_of(getting(choosy), watching(for_ever))
    async with running(server), channel_to(server) as channel:
        stub = frontend(channel)
        for id_ in ("a", "b", "bad"):
            await asyncio.wait([asyncio.ensure_future(stub.GetTicket(frontend_pb2.GetTicketRequest(ticket_id=id_)))])
        stream = stub.WatchAssignments(A_WATCH)
        await first_of(stream)
        measures = {(each.name, *each.labels.values()): each.value for each in server.measures()}
        stream.cancel()
        await eventually(lambda: server.counts[1].ends[StatusCode.CANCELLED] == 1)

    timed = measures.pop(("kizuna_match_rpc_seconds", "GetTicket"))
    assert isinstance(timed, Histogram)
    assert timed.count == 3
    assert measures == {
        ("kizuna_match_rpcs_total", "GetTicket", "OK"): 2,
        ("kizuna_match_rpcs_total", "GetTicket", "INVALID_ARGUMENT"): 1,
        ("kizuna_match_rpcs_open", "GetTicket"): 0,
        ("kizuna_match_rpcs_open", "WatchAssignments"): 1,
    }
    page, _ = Metrics(server.measures).page()
    assert b'kizuna_match_rpcs_total{code="OK",method="GetTicket"} 2.0' in page
    assert b'kizuna_match_rpcs_total{code="CANCELLED",method="WatchAssignments"} 1.0' in page


# where it listens


async def test_a_port_that_is_taken_is_told_with_what_to_set() -> None:
    first = server_of(getting(named))
    async with running(first):
        with pytest.raises(CannotListen, match=r"Address already in use.*set match\.host and match\.backend_port"):
            async with running(server_of(getting(named), port=first.port, port_setting="match.backend_port")):
                pass


async def test_a_host_that_is_not_ours_is_told() -> None:
    settings = MatchSettings(host="host.invalid")

    with pytest.raises(CannotListen, match="there is no such host"):
        async with running(server_of(getting(named), settings=settings)):
            pass


async def test_several_may_share_a_port_if_all_of_them_say_so() -> None:
    first = server_of(getting(named), reuse_port=True)
    async with running(first), running(server_of(getting(named), port=first.port, reuse_port=True)):
        with pytest.raises(CannotListen):
            async with running(server_of(getting(named), port=first.port)):
                pass


async def test_ipv6_is_listened_on() -> None:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        pytest.skip("there is no IPv6 here")

    async with served(getting(named), settings=MatchSettings(host="::1")) as stub:
        assert (await stub.GetTicket(A_TICKET)).id == "a"


async def test_it_starts_and_stops_again_and_again() -> None:
    servers = []

    def make() -> GrpcServer:
        servers.append(server_of(getting(named), watching(for_ever)))
        return servers[-1]

    async def answers() -> bool:
        with socket.create_connection(("127.0.0.1", servers[-1].port), timeout=5):
            return True

    # While something of gRPC lives, so do its own thread and sockets; else they come and go as it likes.
    async with grpc.aio.insecure_channel("127.0.0.1:1"):
        await assert_starts_and_stops(make, check_working=answers)


# TLS


class Certificates:
    def __init__(self, folder: Path) -> None:
        self.ca = trustme.CA()
        self.ca_file, self.cert_file, self.key_file = folder / "ca.pem", folder / "cert.pem", folder / "key.pem"
        issued = self.ca.issue_cert("127.0.0.1", "localhost")
        self.ca.cert_pem.write_to_path(self.ca_file)
        issued.cert_chain_pems[0].write_to_path(self.cert_file)
        issued.private_key_pem.write_to_path(self.key_file)

    def spoil(self, file: str) -> Path:
        path: Path = getattr(self, file)
        path.write_text("nonsense")
        return path

    def settings(self, *, of_callers: bool = False) -> MatchSettings:
        return MatchSettings(
            tls_cert_file=str(self.cert_file),
            tls_key_file=str(self.key_file),
            tls_client_ca_file=str(self.ca_file) if of_callers else "",
        )

    def channel(self, server: GrpcServer, *, with_own: bool = False) -> Any:
        pair: list[Any] = [None, None]
        if with_own:
            own = self.ca.issue_cert("player@example.org")
            pair = [own.private_key_pem.bytes(), own.cert_chain_pems[0].bytes()]
        credentials = grpc.ssl_channel_credentials(self.ca.cert_pem.bytes(), *pair)
        return grpc.aio.secure_channel(server.address, credentials, options=OWN_CONNECTION)


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path)


async def test_with_tls_callers_who_trust_us_are_answered_and_plain_ones_are_not(certificates: Certificates) -> None:
    server = server_of(getting(named), settings=certificates.settings())
    async with running(server), certificates.channel(server) as channel, channel_to(server) as plain:
        assert (await frontend(channel).GetTicket(A_TICKET)).id == "a"
        code, _ = await refusal(frontend(plain).GetTicket(A_TICKET))

    assert code is StatusCode.UNAVAILABLE


async def test_with_a_ca_for_callers_only_those_with_a_certificate_of_it_are_let_in(certificates: Certificates) -> None:
    server = server_of(getting(named), settings=certificates.settings(of_callers=True))
    async with running(server), certificates.channel(server) as without:
        async with certificates.channel(server, with_own=True) as channel:
            assert (await frontend(channel).GetTicket(A_TICKET)).id == "a"
        code, _ = await refusal(frontend(without).GetTicket(A_TICKET))

    assert code is StatusCode.UNAVAILABLE


@pytest.mark.parametrize("file", ["cert_file", "key_file", "ca_file"])
async def test_a_file_of_tls_that_cannot_be_used_is_named(file: str, certificates: Certificates) -> None:
    path = certificates.spoil(file)
    server = server_of(getting(named), settings=certificates.settings(of_callers=True))

    with pytest.raises(SettingsError, match=re.escape(str(path))):
        async with running(server):
            pass
