"""Messages as bytes, for all inputs."""

from __future__ import annotations

import gzip
import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kizuna.match.gateway.codecs import CAMEL_CASE, OWN_NAMES, PROTO, Codec
from kizuna.match.gateway.codes import HTTP_STATUS, Failure, Refused
from kizuna.match.gateway.frames import COMPRESSED, frame, only_frame
from kizuna.match.openmatch import messages_pb2
from kizuna.match.values import pack_into

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=10)
plain = texts | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.booleans() | st.binary(max_size=10)


@st.composite
def tickets(draw: st.DrawFn) -> messages_pb2.Ticket:
    ticket = messages_pb2.Ticket(id=draw(texts))
    ticket.search_fields.tags.extend(draw(st.lists(texts, max_size=3)))
    ticket.search_fields.double_args.update(draw(st.dictionaries(texts, st.floats(allow_nan=False), max_size=3)))
    ticket.search_fields.string_args.update(draw(st.dictionaries(texts, texts, max_size=3)))
    ticket.create_time.seconds = draw(st.integers(0, 253402300799))
    ticket.create_time.nanos = draw(st.integers(0, 999_999_999))
    pack_into(ticket.extensions, draw(st.dictionaries(texts, plain, max_size=3)))
    return ticket


def outcome(read: Callable[[], object]) -> object:
    """What was read, or the status that it was refused with."""
    try:
        return read()
    except Refused as refused:
        return refused.status


@pytest.mark.parametrize("codec", [PROTO, OWN_NAMES, CAMEL_CASE])
@given(ticket=tickets())
def test_a_ticket_is_read_as_it_was_written(codec: Codec, ticket: messages_pb2.Ticket) -> None:
    assert codec.decode(messages_pb2.Ticket, codec.encode(ticket)) == ticket


@pytest.mark.parametrize("codec", [OWN_NAMES, CAMEL_CASE])
def test_what_is_no_number_is_written_as_a_text(codec: Codec) -> None:
    ticket = messages_pb2.Ticket()
    ticket.search_fields.double_args["odd"] = math.nan

    assert b'"NaN"' in codec.encode(ticket)
    again = codec.decode(messages_pb2.Ticket, codec.encode(ticket))
    assert isinstance(again, messages_pb2.Ticket)
    assert math.isnan(again.search_fields.double_args["odd"])


@pytest.mark.parametrize("codec", [PROTO, OWN_NAMES])
@given(body=st.binary(max_size=50) | st.text(max_size=50).map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_any_bytes_are_a_message_or_refused(codec: Codec, body: bytes) -> None:
    read = outcome(lambda: codec.decode(messages_pb2.Ticket, body))

    assert isinstance(read, messages_pb2.Ticket) or read == 400


@given(payload=st.binary(max_size=100))
def test_what_was_framed_is_found_also_if_it_was_packed(payload: bytes) -> None:
    assert only_frame(frame(payload), "", 1000) == payload
    assert only_frame(frame(gzip.compress(payload), COMPRESSED), "gzip", 1000) == payload


@given(body=st.binary(max_size=40), encoding=st.sampled_from(["", "gzip", "br"]))
def test_any_bytes_are_one_frame_or_refused(body: bytes, encoding: str) -> None:
    read = outcome(lambda: only_frame(body, encoding, 100))

    assert isinstance(read, bytes) or read in (400, 413, 501)


def test_wire_format_of_a_frame() -> None:
    assert frame(b"ab", 2) == bytes.fromhex("02 00000002 6162")


def test_every_code_has_a_status_and_a_name() -> None:
    failures = [Failure(code, "") for code in HTTP_STATUS]

    assert sorted(failure.number for failure in failures) == list(range(17))
    assert {failure.connect_name for failure in failures if failure.number == 1} == {"canceled"}
    assert all(200 <= failure.http_status < 600 for failure in failures)
