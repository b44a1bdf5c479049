"""The other process that changes keys while a benchmark listens: one batch of SETs for each byte on stdin.

python -m benchmarks.writer HOST PORT KEYS_IN_A_BATCH
"""

from __future__ import annotations

import os
import socket
import sys

import hiredis

KEY = "benchmark:changed:{}"
_OK = b"+OK\r\n"


def main(host: str, port: str, keys: str) -> None:
    # Packed once: the writer must not be what is measured.
    commands = [("SET", KEY.format(number), b"v") for number in range(int(keys))]
    packed = b"".join(map(hiredis.pack_command, commands))  # type: ignore[arg-type]  # its stub knows one-tuples only
    with socket.create_connection((host, int(port))) as server:
        while batches := os.read(sys.stdin.fileno(), 64):
            for _ in batches:
                server.sendall(packed)
                _await_replies(server, int(keys) * len(_OK))


def _await_replies(server: socket.socket, size: int) -> None:
    while size:
        size -= len(server.recv(min(size, 65_536)))


if __name__ == "__main__":
    main(*sys.argv[1:])
