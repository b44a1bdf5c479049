"""Frames of HTTP/2 (RFC 9113). Does no I/O.

 0        3      4       5           9 ...
+--------+------+-------+-----------+---------+
| length | kind | flags | stream id | payload |
+--------+------+-------+-----------+---------+
   u24      u8     u8       u31        length bytes, all big-endian
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from kizuna.match.serving.http2.faults import FRAME_SIZE_ERROR, PROTOCOL_ERROR, Fault

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
ACK = END_STREAM = 0x1
END_HEADERS, PADDED, HAS_PRIORITY = 0x4, 0x8, 0x20

MAX_CONCURRENT_STREAMS, INITIAL_WINDOW_SIZE, MAX_FRAME_SIZE, MAX_HEADER_LIST_SIZE = 0x3, 0x4, 0x5, 0x6

HEAD_BYTES = 9
LARGEST_BYTES = 16_384
"""Of a payload, unless the other end says that it takes more; we never do."""
LARGEST_WINDOW = 2**31 - 1
FIRST_WINDOW = 65_535
STREAM_BITS = 2**31 - 1

_head = struct.Struct(">BHBBI")
unpack_head = _head.unpack_from
"""(length >> 16, length & 0xffff, kind, flags, stream id with a bit that means nothing)"""
_setting = struct.Struct(">HI")
_u32 = struct.Struct(">I")


class Setting(NamedTuple):
    name: int
    value: int


def head(length: int, kind: int, flags: int, stream: int) -> bytes:
    return _head.pack(length >> 16, length & 0xFFFF, kind, flags, stream)


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return head(len(payload), kind, flags, stream) + payload


def settings(*values: tuple[int, int]) -> bytes:
    return frame(SETTINGS, 0, 0, b"".join(_setting.pack(*value) for value in values))


def rst_stream(stream: int, code: int) -> bytes:
    return frame(RST_STREAM, 0, stream, _u32.pack(code))


def window_update(stream: int, more: int) -> bytes:
    return frame(WINDOW_UPDATE, 0, stream, _u32.pack(more))


def goaway(last_stream: int, code: int, text: str) -> bytes:
    return frame(GOAWAY, 0, 0, _u32.pack(last_stream) + _u32.pack(code) + text.encode())


# What is read out of payloads; Fault for what cannot be in one.


def read_settings(payload: bytes) -> list[Setting]:
    if len(payload) % _setting.size:
        raise Fault(FRAME_SIZE_ERROR, "settings are six bytes each")
    return [Setting(*each) for each in _setting.iter_unpack(payload)]


def read_u32(payload: bytes) -> int:
    """Of a payload that is one number."""
    if len(payload) != _u32.size:
        raise Fault(FRAME_SIZE_ERROR, f"a payload of {len(payload)} bytes; {_u32.size} are due")
    return int(_u32.unpack(payload)[0])


def without_padding(flags: int, payload: bytes) -> bytes:
    if not flags & PADDED:
        return payload
    if not payload or payload[0] >= len(payload):
        raise Fault(PROTOCOL_ERROR, "more padding than payload")
    return payload[1 : len(payload) - payload[0]]


def without_priority(flags: int, payload: bytes) -> bytes:
    if not flags & HAS_PRIORITY:
        return payload
    if len(payload) < 5:
        raise Fault(FRAME_SIZE_ERROR, "headers end within their priority")
    return payload[5:]
