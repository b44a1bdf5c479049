"""python -m benchmarks.pinger HOST PORT: PING, one after the other, until stdin ends; then the times in ms, as JSON.

A process of its own, so that what it waits for is the server, and not us.
"""

from __future__ import annotations

import json
import select
import socket
import sys
import time

PAUSE_S = 0.002


def main() -> None:
    host, port = sys.argv[1], int(sys.argv[2])
    with socket.create_connection((host, port)) as server:
        server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        print(json.dumps(sorted(_pings(server))), flush=True)


def _pings(server: socket.socket) -> list[float]:
    took_ms: list[float] = []
    while not select.select([sys.stdin], [], [], PAUSE_S)[0]:
        began = time.perf_counter()
        server.sendall(b"PING\r\n")
        server.recv(64)
        took_ms.append((time.perf_counter() - began) * 1000)
    return took_ms


if __name__ == "__main__":
    main()
