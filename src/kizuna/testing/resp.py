"""The smallest client that tests need to set servers up: commands, and their answers, blocking.

It shares no code with what it helps to test.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any, Self

import hiredis

from kizuna.errors import Refused

if TYPE_CHECKING:
    from collections.abc import Sequence

    Command = tuple[str | bytes | int | float, ...]

_READ_BYTES = 65_536
_INCOMPLETE = object()


class Conversation:
    """A blocking connection to one server. Not for use by several threads at once."""

    def __init__(self, host: str, port: int, *, timeout_s: float = 5.0) -> None:
        self.address = f"{host}:{port}"
        self._socket = socket.create_connection((host, port), timeout=timeout_s)
        self._reader = hiredis.Reader(notEnoughData=_INCOMPLETE)

    def call(self, *command: str | bytes | int | float) -> Any:
        """The server's answer; `Refused` if that is an error, `OSError` if none comes."""
        # hiredis' own stub allows for tuples of one only.
        self._socket.sendall(hiredis.pack_command(command))  # type: ignore[arg-type]
        return self._answer_to(command)

    def call_all(self, commands: Sequence[Command]) -> list[Any]:
        """The answers to all of these, which are sent together. After a `Refused`, close it: answers are under way."""
        self._socket.sendall(b"".join(hiredis.pack_command(command) for command in commands))  # type: ignore[arg-type]
        return [self._answer_to(command) for command in commands]

    def close(self) -> None:
        self._socket.close()

    def _answer_to(self, command: Command) -> Any:
        reply = self._next_reply()
        if isinstance(reply, hiredis.ReplyError):
            raise Refused(str(reply), self.address, f"it was asked for {command[0]!r}")
        return reply

    def _next_reply(self) -> Any:
        while (reply := self._reader.gets()) is _INCOMPLETE:
            data = self._socket.recv(_READ_BYTES)
            if not data:
                raise ConnectionResetError(f"{self.address} closed the connection")
            self._reader.feed(data)
        return reply

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
