"""The little HTTP/1.1 that probes need: one request header in, one response out. Does no I/O.

Requests with a body are refused: where one ends and the next begins is then never a question.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from email.utils import formatdate
from http import HTTPStatus
from urllib.parse import urlsplit

_REQUEST_LINE = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+) ([!-~]+) HTTP/1\.([01])")
_HEADER = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\x00-\x08\x0a-\x1f\x7f]*)")


class BadRequest(Exception):
    """What came is no request that is answered here. Never leaves the server."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(status, reason)
        self.status, self.reason = status, reason


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    """Without the query."""
    headers: dict[str, str]
    """By their names in lower case."""
    keep_alive: bool


@dataclass(frozen=True)
class Response:
    status: int
    content_type: str
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()


def parse_request(header: bytes) -> Request:
    """The request whose header this is, empty line included. Raises BadRequest."""
    # Latin-1 takes any byte; the patterns below take what HTTP allows.
    first, *lines = header.decode("latin-1").removesuffix("\r\n\r\n").lstrip("\r\n").split("\r\n")
    line = _REQUEST_LINE.fullmatch(first)
    if line is None:
        raise BadRequest(400, "the first line is not a request of HTTP/1.1")
    method, target, minor = line.groups()
    headers = _headers(lines)
    if "transfer-encoding" in headers or headers.get("content-length", "0") != "0":
        raise BadRequest(400, "a request here has no body")
    if minor == "1" and "host" not in headers:
        raise BadRequest(400, "the Host header is missing")
    closes = "close" in headers.get("connection", "").lower()
    return Request(method, _path(target), headers, keep_alive=minor == "1" and not closes)


def encode(response: Response, *, head: bool, keep_alive: bool) -> bytes:
    """The bytes of a response; for HEAD without its body, but with the body's length."""
    lines = [
        f"HTTP/1.1 {response.status} {HTTPStatus(response.status).phrase}",
        f"Date: {formatdate(usegmt=True)}",
        f"Content-Type: {response.content_type}",
        f"Content-Length: {len(response.body)}",
        "Cache-Control: no-store",
        f"Connection: {'keep-alive' if keep_alive else 'close'}",
        *(f"{name}: {value}" for name, value in response.headers),
    ]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + (b"" if head else response.body)


def _headers(lines: list[str]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for line in lines:
        found = _HEADER.fullmatch(line)
        if found is None:
            raise BadRequest(400, "a header is not of the form Name: value")
        name = found[1].lower()
        headers[name] = f"{headers[name]}, {found[2].rstrip()}" if name in headers else found[2].rstrip()
    return headers


def _path(target: str) -> str:
    try:
        return urlsplit(target).path
    except ValueError:
        raise BadRequest(400, "the target of the request is not a URL") from None
