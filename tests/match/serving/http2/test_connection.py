"""A connection, without a network: what it makes of frames, and what it sends back."""

from __future__ import annotations

import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.match.serving.http2.talking import (
    GREETING,
    POST,
    Frame,
    Server,
    data,
    headers_of,
    request,
    split,
)

from kizuna.match.serving.http2 import frames
from kizuna.match.serving.http2.faults import (
    COMPRESSION_ERROR,
    ENHANCE_YOUR_CALM,
    FLOW_CONTROL_ERROR,
    FRAME_SIZE_ERROR,
    NO_ERROR,
    PROTOCOL_ERROR,
    REFUSED_STREAM,
    STREAM_CLOSED,
    Fault,
)
from kizuna.match.serving.http2.frames import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HAS_PRIORITY,
    HEADERS,
    PADDED,
    PING,
    PRIORITY,
    PUSH_PROMISE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    frame,
)
from kizuna.match.serving.http2.hpack import written

BLOCK = written(POST)
OPEN = request(1, None)


def u32(*numbers: int) -> bytes:
    return struct.pack(f">{len(numbers)}I", *numbers)


def codes_of(answers: list[Frame]) -> list[tuple[int, int]]:
    """Streams that were reset, and why."""
    return [(each.stream, struct.unpack(">I", each.payload)[0]) for each in answers if each.kind == RST_STREAM]


# requests


def test_a_request_is_told_whole() -> None:
    server = Server.greeted()
    server.connection.read(request(1, b"body"))

    assert server.listening[1].headers == dict(POST)
    assert (server.listening[1].body, server.listening[1].is_whole) == (b"body", True)


def test_a_request_without_a_body_is_whole_with_its_headers() -> None:
    server = Server.greeted()
    server.connection.read(frame(HEADERS, END_HEADERS | END_STREAM, 1, BLOCK))

    assert server.listening[1].is_whole


def test_headers_in_several_frames_with_padding_and_priority() -> None:
    server = Server.greeted()
    padded = b"\x03" + u32(0) + b"\x10" + BLOCK[:10] + b"\0\0\0"
    server.connection.read(
        frame(HEADERS, PADDED | HAS_PRIORITY | END_STREAM, 1, padded)
        + frame(CONTINUATION, 0, 1, BLOCK[10:20])
        + frame(CONTINUATION, END_HEADERS, 1, BLOCK[20:])
    )

    assert server.listening[1].headers == dict(POST)
    assert server.listening[1].is_whole


def test_padding_of_data_is_taken_off_and_counts_for_the_windows() -> None:
    server = Server.greeted()
    server.connection.read(OPEN)
    server.connection.read(frame(DATA, PADDED, 1, b"\x04body\0\0\0\0"))

    assert server.listening[1].body == b"body"
    assert server.listening[1].stream.window_here == (1 << 18) - 9


def test_trailers_end_a_request() -> None:
    server = Server.greeted()
    server.connection.read(OPEN + data(1, b"body", ends=False))
    server.connection.read(frame(HEADERS, END_HEADERS | END_STREAM, 1, written([(b"a", b"b")])))

    assert server.listening[1].is_whole


def test_streams_are_told_apart() -> None:
    server = Server.greeted()
    server.connection.read(request(1, None) + request(3, b"three") + data(1, b"one"))

    assert [server.listening[stream].body for stream in (1, 3)] == [b"one", b"three"]


EVERYTHING = (
    GREETING
    + frame(PING, 0, 0, b"12345678")
    + request(1, None)
    + frame(PRIORITY, 0, 1, bytes(5))
    + request(3, b"three")
    + frame(0xEE, 0xFF, 1, b"of an extension")
    + data(1, b"one", ends=False)
    + frame(WINDOW_UPDATE, 0, 0, u32(100))
    + data(1, b" and more")
    + request(5, None)
    + frame(RST_STREAM, 0, 5, u32(8))
)


@given(st.lists(st.integers(1, 40), min_size=1))
def test_everything_survives_any_cut(cuts: list[int]) -> None:
    server, wire = Server(), EVERYTHING
    while wire:
        size = cuts[len(wire) % len(cuts)]
        server.connection.read(wire[:size])
        wire = wire[size:]

    bodies = {stream: listening.body for stream, listening in server.listening.items()}
    assert bodies == {1: b"one and more", 3: b"three", 5: b""}
    assert [server.listening[stream].is_reset for stream in (1, 3, 5)] == [False, False, True]
    assert Frame(PING, ACK, 0, b"12345678") in server.answers()


@given(st.integers(0, len(EVERYTHING)), st.binary(max_size=80))
def test_whatever_comes_is_taken_or_a_fault(intact: int, nonsense: bytes) -> None:
    server = Server()
    with suppress(Fault):
        server.connection.read(EVERYTHING[:intact] + nonsense)
    # And what it says is frames, in any case.
    assert server.answers()


kinds = st.integers(0, 12)
some_frames = st.builds(frame, kinds, st.integers(0, 255), st.integers(0, 9), st.binary(max_size=40))


@given(st.lists(some_frames, max_size=12))
def test_whatever_frames_come_are_taken_or_a_fault(sent: list[bytes]) -> None:
    server = Server.greeted()
    with suppress(Fault):
        for each in sent:
            server.connection.read(each)

    # What it says is whole frames, in any case.
    said = server.connection.take()
    assert b"".join(frame(*each) for each in split(said)) == said


# answers


def test_an_answer_is_headers_data_and_trailers() -> None:
    server = Server.greeted()
    server.connection.read(request(1, b""))
    server.connection.send(server.listening[1].stream, written([(b"a", b"1")]), b"data", written([(b"b", b"2")]))

    answers = server.answers()
    assert [(each.kind, each.flags) for each in answers] == [
        (HEADERS, END_HEADERS),
        (DATA, 0),
        (HEADERS, END_HEADERS | END_STREAM),
    ]
    assert headers_of(answers) == [{b"a": b"1"}, {b"b": b"2"}]
    assert server.connection.streams == {}


def test_an_answer_before_the_end_of_the_request_tells_that_the_rest_is_not_needed() -> None:
    server = Server.greeted()
    server.connection.read(OPEN)
    server.connection.send(server.listening[1].stream, trailers=written([(b"a", b"1")]))

    assert codes_of(server.answers()) == [(1, NO_ERROR)]
    # What was under way is taken, and means nothing.
    server.connection.read(data(1, b"late"))
    assert server.listening[1].body == b""


def test_several_answers_are_one_output() -> None:
    server = Server.greeted()
    server.connection.read(request(1) + request(3))
    server.outputs = 0
    for stream in (1, 3):
        server.connection.send(server.listening[stream].stream, b"\x88", b"", b"\x88")

    assert server.outputs == 1


def test_to_a_stream_that_is_gone_nothing_is_sent() -> None:
    server = Server.greeted()
    server.connection.read(request(1) + frame(RST_STREAM, 0, 1, u32(8)))
    server.answers()
    server.connection.send(server.listening[1].stream, b"\x88", b"data", b"\x88")

    assert server.listening[1].is_reset
    assert server.answers() == []


# windows


def sent_data(answers: list[Frame]) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    for each in answers:
        if each.kind == DATA:
            found[each.stream] = found.get(each.stream, b"") + each.payload
    return found


def test_no_more_is_sent_than_the_stream_was_allowed() -> None:
    server = Server()
    server.connection.read(frames.PREFACE + frames.settings((frames.INITIAL_WINDOW_SIZE, 10)) + request(1))
    stream = server.listening[1].stream
    server.connection.send(stream, b"\x88", b"x" * 25, b"\x88")

    assert sent_data(server.answers()) == {1: b"x" * 10}
    assert server.connection.is_full(stream)
    server.connection.read(frame(WINDOW_UPDATE, 0, 1, u32(10)))
    assert sent_data(server.answers()) == {1: b"x" * 10}
    server.connection.read(frame(WINDOW_UPDATE, 0, 1, u32(10)))
    answers = server.answers()
    assert sent_data(answers) == {1: b"x" * 5}
    assert answers[-1].flags == END_HEADERS | END_STREAM


def test_no_more_is_sent_than_the_connection_was_allowed_and_all_get_their_part() -> None:
    server = Server.greeted()
    server.connection.read(frames.settings((frames.INITIAL_WINDOW_SIZE, 1 << 20)) + request(1) + request(3))
    for stream in (1, 3):
        server.connection.send(server.listening[stream].stream, b"\x88", b"x" * 60_000)
    first = sent_data(server.answers())

    assert sum(map(len, first.values())) == 65_535
    server.connection.read(frame(WINDOW_UPDATE, 0, 0, u32(1 << 20)))
    second = sent_data(server.answers())
    assert {stream: len(first.get(stream, b"")) + len(second.get(stream, b"")) for stream in (1, 3)} == {
        1: 60_000,
        3: 60_000,
    }
    assert server.listening[3].had_room == 1


def test_large_data_is_sent_in_frames_of_a_size_that_all_take() -> None:
    server = Server.greeted()
    server.connection.read(request(1))
    server.connection.send(server.listening[1].stream, b"\x88", b"x" * 40_000)

    assert [len(each.payload) for each in server.answers() if each.kind == DATA] == [16_384, 16_384, 7_232]


def test_a_first_window_that_changes_counts_for_streams_that_are_open() -> None:
    server = Server()
    server.connection.read(frames.PREFACE + frames.settings((frames.INITIAL_WINDOW_SIZE, 0)) + request(1))
    server.connection.send(server.listening[1].stream, b"\x88", b"data")
    assert sent_data(server.answers()) == {}

    server.connection.read(frames.settings((frames.INITIAL_WINDOW_SIZE, 100)))

    assert sent_data(server.answers()) == {1: b"data"}


def test_while_the_peer_does_not_read_no_data_is_sent() -> None:
    server = Server.greeted()
    server.connection.read(request(1))
    server.connection.hold_up()
    server.connection.send(server.listening[1].stream, b"\x88", b"data")
    assert sent_data(server.answers()) == {}

    server.connection.go_on()

    assert sent_data(server.answers()) == {1: b"data"}


def test_what_waits_is_forgotten_with_its_stream() -> None:
    server = Server.greeted()
    server.connection.read(frames.settings((frames.INITIAL_WINDOW_SIZE, 0)))
    for stream in range(1, 201, 2):
        server.connection.read(request(stream))
        server.connection.send(server.listening[stream].stream, b"\x88", b"x" * 1_000_000)
        assert not server.connection.is_overfull
        server.connection.read(frame(RST_STREAM, 0, stream, u32(8)))


@given(
    answers=st.lists(st.integers(0, 50_000), min_size=1, max_size=4),
    windows=st.lists(st.tuples(st.integers(0, 3), st.integers(1, 30_000)), max_size=30),
)
def test_all_arrives_in_order_whatever_windows_there_are(answers: list[int], windows: list[tuple[int, int]]) -> None:
    server = Server()
    server.connection.read(frames.PREFACE + frames.settings((frames.INITIAL_WINDOW_SIZE, 1_000)))
    wanted = {number * 2 + 1: bytes(range(256)) * (size // 256) for number, size in enumerate(answers)}
    for stream, body in wanted.items():
        server.connection.read(request(stream))
        server.connection.send(server.listening[stream].stream, b"\x88", body, b"\x88")
    for number, more in windows:
        server.connection.read(frame(WINDOW_UPDATE, 0, number * 2 + 1 if number * 2 + 1 in wanted else 0, u32(more)))
    server.connection.read(frame(WINDOW_UPDATE, 0, 0, u32(1 << 28)))
    for stream in wanted:
        server.connection.read(frame(WINDOW_UPDATE, 0, stream, u32(1 << 28)))
    server.answers()

    assert sent_data(list(split(server.said))) == {stream: body for stream, body in wanted.items() if body}
    assert server.connection.streams == {}


def test_a_peer_may_send_more_when_what_it_sent_was_taken() -> None:
    server = Server.greeted()
    server.connection.read(OPEN)
    for _ in range(8):
        server.connection.read(data(1, b"x" * 16_384, ends=False))
        server.connection.took(server.listening[1].stream, 16_384)
    answers = [each for each in server.answers() if each.kind == WINDOW_UPDATE]

    assert answers == [Frame(WINDOW_UPDATE, 0, 1, u32(131_072))]


def test_a_connection_is_allowed_more_whoever_took_it() -> None:
    server = Server.greeted()
    server.connection.read(OPEN)
    server.connection.reset(server.listening[1].stream)
    for _ in range(100):
        server.connection.read(data(1, b"x" * 16_384, ends=False))

    given_back = [struct.unpack(">I", each.payload)[0] for each in server.answers() if each.kind == WINDOW_UPDATE]
    assert sum(given_back) >= 100 * 16_384 - (1 << 19)


# what is wrong


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (frame(DATA, 0, 0, b"x"), PROTOCOL_ERROR),
        (frame(DATA, 0, 7, b"x"), PROTOCOL_ERROR),
        (OPEN + frame(DATA, PADDED, 1, b"\x05abc"), PROTOCOL_ERROR),
        (frame(HEADERS, END_HEADERS, 0, BLOCK), PROTOCOL_ERROR),
        (frame(HEADERS, END_HEADERS, 2, BLOCK), PROTOCOL_ERROR),
        (frame(HEADERS, END_HEADERS, 1, b"\xff\xff\xff"), COMPRESSION_ERROR),
        (frame(HEADERS, END_HEADERS | HAS_PRIORITY, 1, b"abc"), FRAME_SIZE_ERROR),
        (frame(CONTINUATION, END_HEADERS, 1, BLOCK), PROTOCOL_ERROR),
        (frame(HEADERS, 0, 1, BLOCK) + frame(PING, 0, 0, bytes(8)), PROTOCOL_ERROR),
        (frame(HEADERS, 0, 1, BLOCK) + frame(CONTINUATION, END_HEADERS, 3, b""), PROTOCOL_ERROR),
        (frame(HEADERS, 0, 1, b"") + frame(CONTINUATION, 0, 1, b"") * 9, ENHANCE_YOUR_CALM),
        (frame(HEADERS, 0, 1, bytes(16_000)) + frame(CONTINUATION, 0, 1, bytes(16_000)), ENHANCE_YOUR_CALM),
        (frame(PRIORITY, 0, 0, bytes(5)), PROTOCOL_ERROR),
        (frame(RST_STREAM, 0, 1, u32(8)), PROTOCOL_ERROR),
        (OPEN + frame(RST_STREAM, 0, 1, b"abc"), FRAME_SIZE_ERROR),
        (frame(SETTINGS, 0, 1, b""), PROTOCOL_ERROR),
        (frame(SETTINGS, 0, 0, b"abc"), FRAME_SIZE_ERROR),
        (frame(SETTINGS, ACK, 0, bytes(6)), FRAME_SIZE_ERROR),
        (frames.settings((frames.INITIAL_WINDOW_SIZE, 1 << 31)), FLOW_CONTROL_ERROR),
        (frames.settings((frames.MAX_FRAME_SIZE, 10)), PROTOCOL_ERROR),
        (frame(PUSH_PROMISE, END_HEADERS, 1, BLOCK), PROTOCOL_ERROR),
        (frame(PING, 0, 0, b"abc"), FRAME_SIZE_ERROR),
        (frame(PING, 0, 1, bytes(8)), PROTOCOL_ERROR),
        (frame(GOAWAY, 0, 0, b"abc"), FRAME_SIZE_ERROR),
        (frame(GOAWAY, 0, 1, bytes(8)), PROTOCOL_ERROR),
        (frame(WINDOW_UPDATE, 0, 0, b"abc"), FRAME_SIZE_ERROR),
        (frame(WINDOW_UPDATE, 0, 0, u32(0)), PROTOCOL_ERROR),
        (frame(WINDOW_UPDATE, 0, 0, u32((1 << 31) - 1)), FLOW_CONTROL_ERROR),
        (frame(WINDOW_UPDATE, 0, 9, u32(1)), PROTOCOL_ERROR),
        (frames.head(16_385, DATA, 0, 1), FRAME_SIZE_ERROR),
    ],
)
def test_what_a_connection_cannot_go_on_after(sent: bytes, code: int) -> None:
    fault = Server.greeted().fault(sent)

    assert fault is not None
    assert fault.code == code


def test_more_data_than_the_connection_was_allowed_is_its_end() -> None:
    server = Server.greeted()
    for stream in (1, 3, 5, 7, 9):
        server.connection.read(request(stream, None))
    # What is given back, it has not heard of yet: so it counts what it was told first.
    server.connection._receiver.window = 100

    fault = server.fault(data(1, b"x" * 101))

    assert fault is not None
    assert fault.code == FLOW_CONTROL_ERROR


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (request(1, b"") + data(1, b"more"), STREAM_CLOSED),
        (OPEN + frame(HEADERS, END_HEADERS, 1, BLOCK), PROTOCOL_ERROR),
        (OPEN + frame(WINDOW_UPDATE, 0, 1, u32(0)), PROTOCOL_ERROR),
        (OPEN + frame(WINDOW_UPDATE, 0, 1, u32((1 << 31) - 1)), FLOW_CONTROL_ERROR),
        (OPEN + frame(PRIORITY, 0, 1, b"abc"), FRAME_SIZE_ERROR),
        (OPEN + data(1, b"x" * 16_384, ends=False) * 17, FLOW_CONTROL_ERROR),
    ],
)
def test_what_one_stream_cannot_go_on_after_and_others_can(sent: bytes, code: int) -> None:
    server = Server.greeted()
    server.connection.read(sent)

    assert codes_of(server.answers()) == [(1, code)]
    assert server.listening[1].is_reset
    server.connection.read(request(3, b"three"))
    assert server.listening[3].body == b"three"


def test_who_does_not_begin_as_http2_does_is_refused() -> None:
    assert Server().fault(b"GET / HTTP/1.1\r\nhost: example.org\r\n\r\n") is not None


def test_settings_come_first() -> None:
    fault = Server().fault(frames.PREFACE + frame(PING, 0, 0, bytes(8)))

    assert fault is not None
    assert fault.code == PROTOCOL_ERROR


def test_more_headers_than_are_taken_are_told_as_none() -> None:
    server = Server.greeted()
    large = written([(f"n{number}".encode(), b"v" * 100) for number in range(130)])
    server.connection.read(frame(HEADERS, END_HEADERS, 1, large))

    assert server.listening[1].headers is None


# peers who ask for too much


@pytest.mark.parametrize(
    "sent",
    [
        frame(PING, 0, 0, bytes(8)),
        frames.settings(),
        frame(PRIORITY, 0, 1, bytes(5)),
        frame(WINDOW_UPDATE, 0, 1, u32(1)),
        data(1, b"", ends=False),
        frame(0xEE, 0, 0, b""),
        frame(SETTINGS, ACK, 0),
    ],
    ids=["ping", "settings", "priority", "windows", "empty data", "extensions", "confirmations"],
)
def test_a_flood_of_what_asks_for_nothing_is_stopped(sent: bytes) -> None:
    server = Server.greeted()
    server.connection.read(OPEN)
    faults = []
    for _ in range(120):
        fault = server.fault(sent * 100)
        server.answers()
        if fault:
            faults.append(fault.code)
            break

    assert faults == [ENHANCE_YOUR_CALM]


def test_the_same_over_a_longer_time_is_no_flood() -> None:
    server = Server.greeted()
    for _ in range(300):
        server.now_s += 0.2
        assert server.fault(frame(PING, 0, 0, bytes(8)) * 100) is None
        server.answers()


def test_streams_that_are_opened_and_dropped_at_once_are_stopped() -> None:
    server = Server.greeted()
    fault = None
    for number in range(1, 40_000, 2):
        fault = fault or server.fault(request(number, None) + frame(RST_STREAM, 0, number, u32(8)))
        server.answers()

    assert fault is not None
    assert fault.code == ENHANCE_YOUR_CALM


def test_callers_who_leave_after_a_while_are_no_flood() -> None:
    server = Server.greeted()
    for number in range(1, 40_000, 2):
        assert server.fault(request(number)) is None
        assert server.fault(frame(RST_STREAM, 0, number, u32(8))) is None
        server.answers()


def test_no_more_streams_at_a_time_than_are_allowed() -> None:
    server = Server.greeted()
    allowed = dict(frames.read_settings(next(split(server.said)).payload))[frames.MAX_CONCURRENT_STREAMS]
    for number in range(allowed):
        server.connection.read(request(number * 2 + 1, None))
    server.answers()
    server.connection.read(request(allowed * 2 + 1, None))

    assert codes_of(server.answers()) == [(allowed * 2 + 1, REFUSED_STREAM)]


# ends


def test_who_is_told_to_go_gets_its_answers_and_opens_no_more() -> None:
    server = Server.greeted()
    server.connection.read(request(1))
    server.connection.go_away()
    [goaway] = server.answers()
    server.connection.read(request(3))

    assert (goaway.kind, goaway.payload) == (GOAWAY, u32(1, NO_ERROR))
    assert codes_of(server.answers()) == [(3, REFUSED_STREAM)]
    assert not server.connection.is_done
    server.connection.send(server.listening[1].stream, b"\x88", b"data", b"\x88")
    assert sent_data(server.answers()) == {1: b"data"}
    assert server.connection.is_done


def test_who_says_that_it_goes_gets_its_answers() -> None:
    server = Server.greeted()
    server.connection.read(request(1) + frame(GOAWAY, 0, 0, u32(0, 0)))
    assert not server.connection.is_done

    server.connection.send(server.listening[1].stream, b"\x88", b"", b"\x88")

    assert server.connection.is_done


def test_at_the_end_everybody_is_told() -> None:
    server = Server.greeted()
    server.connection.read(request(1) + request(3, None))
    server.connection.drop_all()

    assert [server.listening[stream].is_reset for stream in (1, 3)] == [True, True]
    assert server.connection.streams == {}
