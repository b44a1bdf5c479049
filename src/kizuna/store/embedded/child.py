"""A server as the child of its keeper: started so that it cannot outlive it, and asked how it is.

The keeper imports this and must be up in a blink: the standard library only, and not all of that.
"""

from __future__ import annotations

import ctypes
import errno
import os
import random
import signal
import socket
import subprocess
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path
    from typing import BinaryIO

HOST = "127.0.0.1"
_PORTS = range(22_000, 32_000)
_PR_SET_PDEATHSIG = 1


def start_child(binary: str, configuration: Path, log: BinaryIO, lock: int) -> subprocess.Popen[bytes]:
    """Start a server that holds `lock` while it lives, and ends when we do. Raises OSError."""
    keeper_pid, libc = os.getpid(), ctypes.CDLL(None)
    return subprocess.Popen(
        [binary, str(configuration)],
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        pass_fds=[lock],
        preexec_fn=lambda: _end_with(keeper_pid, libc),
    )


def _end_with(keeper_pid: int, libc: ctypes.CDLL) -> None:
    """Runs in the new process before it becomes the server."""
    if sys.platform == "linux":
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    # A keeper that died before the line above cannot be told of any more.
    if os.getppid() != keeper_pid:
        os._exit(1)


def ask(port: int, *words: str) -> str:
    """The whole answer to one command, as it is on the wire. Raises OSError."""
    command = "".join(f"${len(word.encode())}\r\n{word}\r\n" for word in words)
    with socket.create_connection((HOST, port), timeout=1.0) as connection:
        # QUIT makes the end of the answer the end of the stream: nothing has to be parsed to find it.
        connection.sendall(f"*{len(words)}\r\n{command}*1\r\n$4\r\nQUIT\r\n".encode())
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    return answer.decode(errors="replace").removesuffix("+OK\r\n").strip()


def facts_of(port: int) -> dict[str, str]:
    """The server's section of INFO. Raises OSError."""
    return dict(line.split(":", 1) for line in ask(port, "INFO", "server").splitlines() if ":" in line)


def ask_to_end(port: int, data: Path) -> None:
    """Shut down the server on that port if it is one on our data. Raises OSError."""
    if ask(port, "CONFIG", "GET", "dir").endswith(f"\n{data}"):
        ask(port, "SHUTDOWN", "NOSAVE")


def is_free(port: int) -> bool:
    """On both loopback addresses, where there are two."""
    return all(_can_listen(family, host, port) for family, host in ((socket.AF_INET, HOST), (socket.AF_INET6, "::1")))


def _can_listen(family: socket.AddressFamily, host: str, port: int) -> bool:
    try:
        with socket.socket(family) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((host, port))
    except OSError as error:
        # Any other reason means that there is no such address here, and the server does without it.
        return error.errno not in (errno.EADDRINUSE, errno.EACCES)
    return True


def free_port() -> int:
    """One that systems do not hand to outgoing connections: a client that looks for a server which is not there
    yet could be given that very port, and meet itself."""
    return next(port for port in random.sample(_PORTS, len(_PORTS)) if is_free(port))
