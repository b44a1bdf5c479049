"""A real Valkey or Redis for tests: in its own folder, on a free loopback port, gone with the tests.

How a server is tied to the process that started it:

    test process ── lifeline (a pipe) ──> sh ── starts ──> server
                 <── sign of life (a pipe that only the server holds open) ──

`sh` waits on the lifeline and kills the server when it closes, which the kernel does for us however the test
process ends, on every POSIX system; then a temporary folder goes too. The other pipe ends when the server does,
so nobody polls process ids.
"""

from __future__ import annotations

import os
import secrets
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Self

from kizuna.errors import Refused, ServerNotStarted
from kizuna.store.embedded.setup import server_binary
from kizuna.testing.blocks import Block
from kizuna.testing.resp import Conversation

if TYPE_CHECKING:
    from collections.abc import Mapping

HOST = "127.0.0.1"

# Below the ports that systems hand to outgoing connections: a client that knocks at a stopped server's port
# cannot be given that very port, connect to itself and keep the server from coming back. A cluster node also
# needs the port 10,000 higher.
_PORTS = range(11_000, 22_000)
_PORTS_TRIED = 20
_READY_WITHIN_S = 15.0
_LOOK_EVERY_S = 0.005

# A line on the lifeline: end the server, its folder is still needed. The end of the lifeline: nobody is left to
# need it. $! stays a child of sh until `wait`, so the process id that is killed cannot be anybody else's.
_KEEPER = """
folder=$1; shift
"$@" </dev/null 2>>server.err &
echo $!; exec >&-
read -r _ && folder=
kill -9 $!; wait $!
[ -z "$folder" ] || rm -rf "$folder"
"""

_ADMIN = "kizuna-testing"


class ServerProcess(Block):
    """One server. `start`, `stop`, `kill`, `restart`, `pause` and `resume` block for some milliseconds; in a
    test that must keep its event loop turning, call them with `asyncio.to_thread`.

    Port and folder stay the same from the first start on. Nothing is written to disk unless `persistent`,
    then every write is (append-only file, synced each second). `users` maps ACL users to their rules, as in
    `{"reader": "on >secret ~* +@read"}`; `password` is that of the default user, and not part of `url`;
    `config` is any option of valkey.conf, and wins over what is set here. `binary` is another server than the
    one that comes along.
    """

    host = HOST

    def __init__(
        self,
        folder: Path | None = None,
        *,
        binary: str = "",
        persistent: bool = False,
        password: str = "",
        users: Mapping[str, str] | None = None,
        unix_socket: bool = False,
        config: Mapping[str, str | int] | None = None,
        sentinel: bool = False,
    ) -> None:
        self.port = 0
        self.pid = 0
        self.password = password
        self._binary = binary
        self._own_folder = folder is None
        self._folder = folder
        self._persistent = persistent
        self._users = dict(users or {})
        self._unix_socket = unix_socket
        self._config = dict(config or {})
        self._sentinel = sentinel
        self._admin_password = secrets.token_hex(8) if password or users else ""
        self._keeper: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        return f"redis://{self.address}/0"

    @property
    def folder(self) -> Path:
        """Where the server runs and keeps its data. A temporary one is made if none was given."""
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="kizuna-test-"))
        return self._folder

    @property
    def socket_path(self) -> Path:
        """The unix socket, if `unix_socket` was asked for."""
        return self.folder / "server.sock"

    @property
    def alive(self) -> bool:
        return self._keeper is not None and not self._ended_within(0)

    def start(self) -> Self:
        """Return once the server answers. `ServerNotStarted` carries the end of its log."""
        if self.alive:
            raise ServerNotStarted(f"it already runs on port {self.port}", "stop it first, or call restart()")
        self.kill()
        if self.port:
            self._launch()
        else:
            self._launch_on_a_free_port()
        return self

    def stop(self, *, within_s: float = 10.0) -> None:
        """Ask it to end, as an administrator would; it is killed if it does not."""
        if self._keeper is None:
            return
        if self.alive:
            self.resume()
            self._signal(signal.SIGTERM)
            self._ended_within(within_s)
        self.kill()

    def kill(self) -> None:
        """End it at once, as `kill -9` or a crash would. Its folder stays."""
        keeper, self._keeper = self._keeper, None
        if keeper is None:
            return
        keeper.communicate(b"\n")  # and wait until server and keeper are gone
        self.pid = 0

    def restart(self) -> None:
        """Stop it if it runs, and start it on the same port and folder."""
        self.stop()
        self.start()

    def pause(self) -> None:
        """Stop it from running, without closing a connection: what a partition or a long fork looks like."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def close(self) -> None:
        """Kill it, and remove its folder if that was a temporary one. Can be repeated."""
        self.kill()
        if self._own_folder and self._folder is not None:
            shutil.rmtree(self._folder)
            self._folder = None

    def connect(self, *, timeout_s: float = 5.0) -> Conversation:
        """A blocking connection for setting things up, signed in if the server asks for it."""
        conversation = Conversation(self.host, self.port, timeout_s=timeout_s)
        try:
            if self._admin_password:
                conversation.call("AUTH", _ADMIN, self._admin_password)
        except BaseException:
            conversation.close()
            raise
        return conversation

    def call(self, *command: str | bytes | int | float, timeout_s: float = 5.0) -> Any:
        """Run one command on a connection of its own. `Refused` if the server says no."""
        with self.connect(timeout_s=timeout_s) as conversation:
            return conversation.call(*command)

    def info(self, section: str) -> dict[str, str]:
        lines = bytes(self.call("INFO", section)).decode().splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line)

    def log(self) -> str:
        """All that the server wrote, for the message of a failed test."""
        files = [self.folder / "server.err", self.folder / "server.log"]
        return "".join(file.read_text(errors="replace") for file in files if file.exists())

    def _launch_on_a_free_port(self) -> None:
        # Another process may take the port between our look and the server's: then we try the next one.
        for _ in range(_PORTS_TRIED):
            self.port = free_port()
            self._write_config()
            try:
                return self._launch()
            except ServerNotStarted:
                if "already in use" not in self.log():
                    raise
                (self.folder / "server.log").unlink()
        raise ServerNotStarted(f"{_PORTS_TRIED} ports were taken", "are there that many servers running?")

    def _launch(self) -> None:
        mode = ["--sentinel"] if self._sentinel else []
        to_remove = str(self.folder) if self._own_folder else ""
        self._keeper = subprocess.Popen(
            ["/bin/sh", "-c", _KEEPER, "sh", to_remove, server_binary(self._binary), "server.conf", *mode],
            cwd=self.folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # the server's own goes to server.err; the shell would announce kills
            # Ctrl-C in the terminal is for the tests, which then end the server in their own order.
            start_new_session=True,
        )
        self.pid = int(_opened(self._keeper.stdout).readline())
        self._wait_until_ready()

    def _wait_until_ready(self) -> None:
        ends_at = time.monotonic() + _READY_WITHIN_S
        while not self._answers():
            if self._ended_within(_LOOK_EVERY_S):
                self.kill()
                raise ServerNotStarted("it ended at once", f"its log ends with: {self.log()[-1500:]}")
            if time.monotonic() > ends_at:
                self.kill()
                raise ServerNotStarted(
                    f"no answer within {_READY_WITHIN_S:g}s", f"its log ends with: {self.log()[-1500:]}"
                )

    def _answers(self) -> bool:
        try:
            self.call("PING")
            # Somebody else's server may have taken the port a moment before ours could.
            return self.info("server")["process_id"] == str(self.pid)
        except (OSError, Refused):
            return False

    def _ended_within(self, seconds: float) -> bool:
        assert self._keeper is not None
        sign_of_life = select.poll()  # and not select(), which refuses file descriptors above 1023
        sign_of_life.register(_opened(self._keeper.stdout))
        return bool(sign_of_life.poll(seconds * 1000))

    def _signal(self, number: signal.Signals) -> None:
        if not self.alive:
            raise ProcessLookupError(f"the server on port {self.port} does not run")
        os.kill(self.pid, number)

    def _write_config(self) -> None:
        options: dict[str, str | int] = {
            "bind": self.host,
            "port": self.port,
            "dir": str(self.folder),
            "logfile": "server.log",
        }
        if not self._sentinel:
            options |= {
                "save": "",
                "appendonly": "yes" if self._persistent else "no",
                # 5 s by default, which is what a test with a replica would mostly do: wait.
                "repl-diskless-sync-delay": 0,
            }
        if self._unix_socket:
            options["unixsocket"] = str(self.socket_path)
        if self._admin_password:
            options["aclfile"] = str(self._write_users())
        lines = [f'{name} "{value}"' for name, value in (options | self._config).items()]
        (self.folder / "server.conf").write_text("\n".join(lines) + "\n")

    def _write_users(self) -> Path:
        default = f"on >{self.password} ~* &* +@all" if self.password else "on nopass ~* &* +@all"
        users = {"default": default, **self._users, _ADMIN: f"on >{self._admin_password} ~* &* +@all"}
        path = self.folder / "users.acl"
        path.write_text("".join(f"user {name} {rules}\n" for name, rules in users.items()))
        return path


def free_port() -> int:
    """A loopback port that nobody listened on a moment ago; whoever uses it may yet lose the race for it."""
    while True:
        # Not from `random`: test tools seed it, and parallel workers would all try the same ports.
        port = secrets.choice(_own_ports())
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            return port


def _own_ports() -> range:
    """Of an xdist worker, those that no other worker takes: a server that is stopped can come back on its port."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    return _PORTS[worker :: int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))]


def _opened(stream: IO[bytes] | None) -> IO[bytes]:
    assert stream is not None
    return stream
