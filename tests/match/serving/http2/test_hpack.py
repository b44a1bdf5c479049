"""Header blocks: the examples of RFC 7541 byte for byte, and what no peer can do with them."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kizuna.match.serving.http2 import huffman
from kizuna.match.serving.http2.faults import COMPRESSION_ERROR, Fault
from kizuna.match.serving.http2.hpack import HeaderReader, written

TO_256_BYTES = "3fe101"
"""The examples with responses have a table of that size."""


def read(reader: HeaderReader, block: str) -> list[tuple[str, str]]:
    headers = reader.read(bytes.fromhex(block))
    assert headers is not None
    return [(name.decode(), value.decode()) for name, value in headers.items()]


REQUESTS = [
    [(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "www.example.com")],
    [
        (":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "www.example.com"),
        ("cache-control", "no-cache"),
    ],
    [
        (":method", "GET"), (":scheme", "https"), (":path", "/index.html"), (":authority", "www.example.com"),
        ("custom-key", "custom-value"),
    ],
]  # fmt: skip
DATE = "Mon, 21 Oct 2013 20:13:21 GMT"
RESPONSES = [
    [(":status", "302"), ("cache-control", "private"), ("date", DATE), ("location", "https://www.example.com")],
    [(":status", "307"), ("cache-control", "private"), ("date", DATE), ("location", "https://www.example.com")],
    [
        (":status", "200"), ("cache-control", "private"), ("date", DATE.replace("21 GMT", "22 GMT")),
        ("location", "https://www.example.com"), ("content-encoding", "gzip"),
        ("set-cookie", "foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1"),
    ],
]  # fmt: skip


@pytest.mark.parametrize(
    ("block", "header"),
    [
        ("400a637573746f6d2d6b65790d637573746f6d2d686561646572", ("custom-key", "custom-header")),
        ("040c2f73616d706c652f70617468", (":path", "/sample/path")),
        ("100870617373776f726406736563726574", ("password", "secret")),
        ("82", (":method", "GET")),
    ],
)
def test_one_header_of_each_kind(block: str, header: tuple[str, str]) -> None:
    assert read(HeaderReader(1_000), block) == [header]


@pytest.mark.parametrize(
    "blocks",
    [
        (
            "828684410f7777772e6578616d706c652e636f6d",
            "828684be58086e6f2d6361636865",
            "828785bf400a637573746f6d2d6b65790c637573746f6d2d76616c7565",
        ),
        (
            "828684418cf1e3c2e5f23a6ba0ab90f4ff",
            "828684be5886a8eb10649cbf",
            "828785bf408825a849e95ba97d7f8925a849e95bb8e8b4bf",
        ),
    ],
    ids=["plain", "in Huffman's code"],
)
def test_requests_one_after_the_other(blocks: tuple[str, ...]) -> None:
    reader = HeaderReader(1_000)

    assert [read(reader, block) for block in blocks] == REQUESTS


@pytest.mark.parametrize(
    "blocks",
    [
        (
            TO_256_BYTES + "4803333032580770726976617465611d4d6f6e2c203231204f637420323031332032303a31333a323120474d54"
            "6e1768747470733a2f2f7777772e6578616d706c652e636f6d",
            "4803333037c1c0bf",
            (
                "88c1611d4d6f6e2c203231204f637420323031332032303a31333a323220474d54c05a04677a69707738666f6f3d4153444a4b"
                "48514b425a584f5157454f50495541585157454f49553b206d61782d6167653d333630303b2076657273696f6e3d31"
            ),
        ),
        (
            TO_256_BYTES + "488264025885aec3771a4b6196d07abe941054d444a8200595040b8166e082a62d1bff"
            "6e919d29ad171863c78f0b97c8e9ae82ae43d3",
            "4883640effc1c0bf",
            (
                "88c16196d07abe941054d444a8200595040b8166e084a62d1bffc05a839bd9ab77ad94e7821dd7f2e6c7b335dfdfcd5b3960"
                "d5af27087f3672c1ab270fb5291f9587316065c003ed4ee5b1063d5007"
            ),
        ),
    ],
    ids=["plain", "in Huffman's code"],
)
def test_responses_that_push_each_other_out_of_the_table(blocks: tuple[str, ...]) -> None:
    reader = HeaderReader(1_000)

    assert [read(reader, block) for block in blocks] == RESPONSES


def test_the_same_block_means_something_else_when_the_table_has_changed() -> None:
    reader = HeaderReader(1_000)
    first = read(reader, "40016101" + b"1".hex() + "be")
    again = read(reader, "be")
    read(reader, "40016201" + b"2".hex())

    assert (first, again, read(reader, "be")) == ([("a", "1")], [("a", "1")], [("b", "2")])


@given(st.dictionaries(st.binary(min_size=1, max_size=300), st.binary(max_size=300), max_size=8))
def test_what_is_written_can_be_read(headers: dict[bytes, bytes]) -> None:
    assert HeaderReader(10_000).read(written(headers.items())) == headers


def test_more_headers_than_are_taken_leave_the_table_as_it_should_be() -> None:
    reader = HeaderReader(100)

    assert reader.read(bytes.fromhex("40016101") + b"1" + written([(b"long", b"x" * 100)])) is None
    assert reader.read(b"\xbe") == {b"a": b"1"}


@pytest.mark.parametrize(
    "block",
    [
        "80",  # no header 0
        "be",  # of a table that is empty
        "ff80808080808080808001",  # a number without an end
        "ffffffff7f",  # a header far outside
        "3fe21f",  # a table that is larger than allowed
        "8220",  # a table that changes within headers
        "40056162",  # a name that ends too early
        "4001",
        "40",
        "408130",  # five bits of padding that are no ones
        "4081ff01" + b"1".hex(),  # a whole byte of padding
        "4084ffffffff01" + b"1".hex(),  # the code of the end
    ],
)
def test_nonsense_is_a_fault(block: str) -> None:
    with pytest.raises(Fault) as fault:
        HeaderReader(1_000).read(bytes.fromhex(block))

    assert fault.value.code == COMPRESSION_ERROR


@given(st.lists(st.binary(max_size=60), max_size=5))
def test_whatever_comes_is_headers_or_a_fault(blocks: list[bytes]) -> None:
    reader = HeaderReader(500)
    with suppress(Fault):
        for block in blocks:
            headers = reader.read(block)
            assert headers is None or sum(len(name) + len(value) + 32 for name, value in headers.items()) <= 500


@given(st.binary(max_size=40))
def test_whatever_is_decoded_is_bytes_or_a_fault(data: bytes) -> None:
    with suppress(Fault):
        # The shortest code has five bits.
        assert len(huffman.decode(data)) <= len(data) * 8 // 5
