"""Messages, statuses and deadlines of gRPC, as bytes."""

from __future__ import annotations

import gzip
from urllib.parse import unquote_to_bytes

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.match.serving.http2.talking import message

from kizuna.match.serving.http2 import messages
from kizuna.match.serving.http2.hpack import HeaderReader
from kizuna.match.serving.http2.messages import Ended, MessageReader


@given(st.lists(st.binary(max_size=50), max_size=5), st.lists(st.integers(1, 20), min_size=1))
def test_messages_survive_any_cut(sent: list[bytes], cuts: list[int]) -> None:
    reader = MessageReader(50, is_gzipped=False)
    wire = b"".join(map(message, sent))
    found = []
    while wire:
        size = cuts[len(wire) % len(cuts)]
        found += reader.feed(wire[:size])
        wire = wire[size:]

    assert found == sent
    assert not reader.is_within_one


def test_a_message_is_framed_as_it_is_read() -> None:
    assert messages.framed(b"abc") == bytes.fromhex("0000000003") + b"abc"


def test_one_that_is_too_large_is_refused_before_it_is_there() -> None:
    reader = MessageReader(10, is_gzipped=False)

    with pytest.raises(Ended, match="a message of 11 bytes; 10 bytes are taken") as ended:
        reader.feed(bytes.fromhex("000000000b"))
    assert ended.value.code == messages.RESOURCE_EXHAUSTED


def zipped(body: bytes) -> bytes:
    return b"\1" + message(gzip.compress(body))[1:]


def test_gzip_is_unpacked_next_to_what_is_plain() -> None:
    reader = MessageReader(100, is_gzipped=True)

    assert reader.feed(zipped(b"abc") + message(b"def")) == [b"abc", b"def"]


@pytest.mark.parametrize(
    ("wire", "code"),
    [
        (zipped(b"0" * 1_000_000), messages.RESOURCE_EXHAUSTED),
        (b"\1" + message(b"no gzip")[1:], messages.INTERNAL),
        (b"\1" + message(gzip.compress(b"abc")[:-3])[1:], messages.INTERNAL),
        (b"\2" + message(b"abc")[1:], messages.INTERNAL),
    ],
    ids=["a bomb", "no gzip", "cut off", "no such flag"],
)
def test_what_cannot_be_unpacked_ends_the_call(wire: bytes, code: int) -> None:
    with pytest.raises(Ended) as ended:
        MessageReader(10_000, is_gzipped=True).feed(wire)

    assert ended.value.code == code


def test_who_did_not_say_how_it_compresses_may_not() -> None:
    with pytest.raises(Ended) as ended:
        MessageReader(100, is_gzipped=False).feed(zipped(b"abc"))

    assert ended.value.code == messages.INTERNAL


@given(st.text(max_size=100))
def test_any_text_can_be_told_with_a_status(text: str) -> None:
    headers = HeaderReader(10_000).read(messages.trailers(13, text))

    assert headers is not None
    assert headers[b"grpc-status"] == b"13"
    told = headers.get(b"grpc-message", b"")
    assert all(32 <= byte < 127 for byte in told)
    assert unquote_to_bytes(told) == text.encode()


def test_a_text_that_is_very_long_is_cut() -> None:
    headers = HeaderReader(100_000).read(messages.only_trailers(13, "x" * 100_000))

    assert headers is not None
    assert len(headers[b"grpc-message"]) == 2_048


@pytest.mark.parametrize(
    ("text", "seconds"),
    [(b"2H", 7200), (b"3M", 180), (b"5S", 5), (b"250m", 0.25), (b"99999999u", 99.999999), (b"1000n", 1e-6)],
)
def test_deadlines_of_all_units(text: bytes, seconds: float) -> None:
    assert messages.timeout_s({b"grpc-timeout": text}) == pytest.approx(seconds)


@pytest.mark.parametrize("text", [b"", b"S", b"5", b"-1S", b"1.5S", b"123456789S", b"5X"])
def test_what_is_no_deadline_ends_the_call(text: bytes) -> None:
    with pytest.raises(Ended):
        messages.timeout_s({b"grpc-timeout": text})


def test_without_a_deadline_there_is_none() -> None:
    assert messages.timeout_s({}) is None
