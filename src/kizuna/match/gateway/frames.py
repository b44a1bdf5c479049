"""Messages one behind the other, as Connect and gRPC-Web have them in a body.

     0       1        5 ...
    +-------+--------+---------+
    | flags | length | payload |
    +-------+--------+---------+
       u8     u32 BE    bytes

This module does no I/O.
"""

from __future__ import annotations

import struct
import zlib

from grpc import StatusCode

from kizuna.match.gateway.codes import refused

COMPRESSED = 0x01
CONNECT_END = 0x02
GRPC_WEB_TRAILERS = 0x80

_HEADER = struct.Struct(">BI")
_GZIP = 31


def frame(payload: bytes, flags: int = 0) -> bytes:
    return _HEADER.pack(flags, len(payload)) + payload


def only_frame(body: bytes, encoding: str, largest: int) -> bytes:
    """The payload of the one message that a request is; Refused for anything else."""
    if len(body) < _HEADER.size:
        raise refused(StatusCode.INVALID_ARGUMENT, "the body ends within the first five bytes of its message")
    flags, length = _HEADER.unpack_from(body)
    payload = body[_HEADER.size :]
    if flags & ~COMPRESSED:
        raise refused(StatusCode.INVALID_ARGUMENT, f"a message with the flags {flags:#04x} is not known here")
    if len(payload) != length:
        raise refused(
            StatusCode.INVALID_ARGUMENT,
            f"the body has to be one message: {length} bytes were announced, and {len(payload)} came",
        )
    return decompressed(payload, encoding, largest) if flags & COMPRESSED else payload


def decompressed(payload: bytes, encoding: str, largest: int) -> bytes:
    """Refused for what is not in this encoding, for one that is not known, and for what grows too large."""
    if encoding in ("", "identity"):
        return payload
    if encoding != "gzip":
        raise refused(StatusCode.UNIMPLEMENTED, f"the encoding {encoding!r} is not known here; gzip is, and identity")
    unpacking = zlib.decompressobj(_GZIP)
    try:
        found = unpacking.decompress(payload, largest + 1)
    except zlib.error as error:
        raise refused(StatusCode.INVALID_ARGUMENT, f"the body is not in gzip, as it says: {error}") from None
    if len(found) > largest:
        raise too_large(largest)
    if not unpacking.eof:
        raise refused(StatusCode.INVALID_ARGUMENT, "the body, in gzip, ends before its end")
    return found


def too_large(largest: int) -> Exception:
    # The connection is closed: what is left of the body is not waited for.
    return refused(
        StatusCode.RESOURCE_EXHAUSTED,
        f"the body has more than {largest:,} bytes; send less, or raise match.largest_bytes",
        413,
        connection="close",
    )
