"""A match function over HTTP JSON: one request, and an answer of lines, each a proposal.

    POST /v1/matchfunction:run   {"profile": …}
    200                          {"result": {"proposal": …}}⏎ {"result": {"proposal": …}}⏎ …
                                 or, as the last line, {"error": {"message": …}}

The answer comes in chunks, with a length, or until the connection closes.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any

from google.protobuf import json_format

from kizuna.errors import FunctionFailed
from kizuna.listening import address_of
from kizuna.match.openmatch import matchfunction_pb2, messages_pb2
from kizuna.match.openmatch.pool import POOL

_PATH = "/v1/matchfunction:run"
_PIECE = 64 * 1024
_TOLD_OF_BODY = 200


async def run_over_rest(
    host: str,
    port: int,
    profile: messages_pb2.MatchProfile,
    largest_bytes: int,
    tls: ssl.SSLContext | None = None,
) -> AsyncGenerator[messages_pb2.Match, None]:
    """FunctionFailed if it does not end well, or sends a line of more than `largest_bytes`."""
    address = address_of(host, port)
    request = _request(address, profile)
    try:
        reader, writer = await asyncio.open_connection(host, port, ssl=tls)
        try:
            writer.write(request)
            await writer.drain()
            async with aclosing(_lines(reader, largest_bytes)) as lines:
                async for line in lines:
                    yield _proposal(line)
        finally:
            # Not gently: a peer that reads nothing more must not keep us.
            writer.transport.abort()
    except (OSError, EOFError, _Unreadable, json_format.ParseError, ValueError) as error:
        raise FunctionFailed(address, str(error) or type(error).__name__) from error


class _Unreadable(Exception):
    """Says why what came is no answer of a match function. Never leaves this module."""


def _request(address: str, profile: messages_pb2.MatchProfile) -> bytes:
    try:
        run = matchfunction_pb2.RunRequest(profile=profile)
        body = json_format.MessageToJson(run, preserving_proto_field_name=True, indent=None, descriptor_pool=POOL)
    except TypeError as error:
        # JSON has to know what is in an Any.
        raise FunctionFailed(address, f"the profile cannot be written as JSON ({error}); call it over gRPC") from error
    raw = body.encode()
    lines = [
        f"POST {_PATH} HTTP/1.1",
        f"Host: {address}",
        "Content-Type: application/json",
        "Accept: application/json",
        f"Content-Length: {len(raw)}",
        "Connection: close",
    ]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + raw


def _proposal(line: bytes) -> messages_pb2.Match:
    """_Unreadable if the line tells of an error, ParseError or ValueError if it is none of ours."""
    found: Any = json.loads(line)
    if not isinstance(found, dict) or not isinstance(found.get("result"), dict):
        raise _Unreadable(_error_in(found))
    response = matchfunction_pb2.RunResponse()
    json_format.ParseDict(found["result"], response, ignore_unknown_fields=True, descriptor_pool=POOL)
    return response.proposal


def _error_in(found: Any) -> str:
    error = found.get("error") if isinstance(found, dict) else None
    if isinstance(error, dict):
        return str(error.get("message", error))
    return str(error or f"no proposal but {str(found)[:_TOLD_OF_BODY]}")


# HTTP


async def _lines(reader: asyncio.StreamReader, largest_bytes: int) -> AsyncGenerator[bytes, None]:
    status, headers = await _head(reader)
    if status != 200:
        raise _Unreadable(f"HTTP status {status}: {await _start_of(_body(reader, headers))}")
    waiting = b""
    async with aclosing(_body(reader, headers)) as pieces:
        async for piece in pieces:
            *whole, waiting = (waiting + piece).split(b"\n")
            for line in whole:
                if line.strip():
                    yield line
            if len(waiting) > largest_bytes:
                raise _Unreadable(f"a line of more than {largest_bytes} bytes")
    if waiting.strip():
        yield waiting


async def _head(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    first, *lines = (await _until(reader, b"\r\n\r\n")).decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
    version, _, rest = first.partition(" ")
    if not version.startswith("HTTP/1.") or not rest[:3].isdigit():
        raise _Unreadable(f"no answer in HTTP/1.1: {first[:_TOLD_OF_BODY]!r}")
    headers = (line.partition(":") for line in lines)
    return int(rest[:3]), {name.strip().lower(): value.strip() for name, _, value in headers}


def _body(reader: asyncio.StreamReader, headers: dict[str, str]) -> AsyncGenerator[bytes, None]:
    if headers.get("transfer-encoding", "").lower() == "chunked":
        return _chunks(reader)
    length = headers.get("content-length")
    return _exactly(reader, int(length)) if length is not None else _to_the_end(reader)


async def _chunks(reader: asyncio.StreamReader) -> AsyncGenerator[bytes, None]:
    while size := int((await _until(reader, b"\r\n")).split(b";")[0], 16):
        async for piece in _exactly(reader, size):
            yield piece
        await reader.readexactly(2)
    # What follows the last chunk tells nothing that we need, and the connection is not used again.


async def _exactly(reader: asyncio.StreamReader, size: int) -> AsyncGenerator[bytes, None]:
    while size > 0:
        piece = await reader.read(min(size, _PIECE))
        if not piece:
            raise _Unreadable(f"the answer ended {size} bytes too early")
        size -= len(piece)
        yield piece


async def _to_the_end(reader: asyncio.StreamReader) -> AsyncGenerator[bytes, None]:
    while piece := await reader.read(_PIECE):
        yield piece


async def _until(reader: asyncio.StreamReader, end: bytes) -> bytes:
    try:
        return await reader.readuntil(end)
    except asyncio.LimitOverrunError as error:
        raise _Unreadable("a header that does not end") from error
    except asyncio.IncompleteReadError as error:
        raise _Unreadable("the answer ended too early") from error


async def _start_of(pieces: AsyncIterator[bytes]) -> str:
    found = b""
    async for piece in pieces:
        found += piece
        if len(found) > _TOLD_OF_BODY:
            break
    return found[:_TOLD_OF_BODY].decode(errors="replace").strip()
