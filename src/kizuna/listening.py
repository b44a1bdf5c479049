"""Sockets that listen, and why one cannot."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kizuna.errors import CannotListen


async def listen(host: str, port: int, settings: str, *, reuse_port: bool = False) -> socket.socket:
    """A socket that is bound; port 0 is a free one. CannotListen if the address is taken, or not ours: says which
    `settings` name it."""
    with saying_why(host, port, settings):
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        family, _, _, _, address = found[0]
        # Named, or asyncio does not know it for TCP, and leaves each answer to wait for the peer's next word.
        return _bound(socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP), address, reuse_port)


@contextmanager
def saying_why(host: str, port: int, settings: str) -> Iterator[None]:
    """What the system says, in our words: CannotListen."""
    try:
        yield
    # UnicodeError: what is no name of a host in any alphabet.
    except (OSError, UnicodeError) as error:
        unknown = not isinstance(error, OSError) or isinstance(error, socket.gaierror) or not error.errno
        reason = "there is no such host" if unknown else os.strerror(getattr(error, "errno", 0))
        raise CannotListen(address_of(host, port), reason, settings) from error


def url_of(listener: socket.socket, scheme: str = "http") -> str:
    host, port = listener.getsockname()[:2]
    return f"{scheme}://{address_of(host, port)}"


def address_of(host: str, port: int) -> str:
    """As in a URL."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _bound(listener: socket.socket, address: Any, reuse_port: bool) -> socket.socket:
    try:
        # Else the port of a server that has just ended would be taken for a minute.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if reuse_port:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind(address)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return listener
