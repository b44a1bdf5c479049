"""Keeps one server running on one folder for as long as somebody uses it. A program of its own:

    python -m kizuna.store.embedded.keeper <folder> <start id> <plan as JSON> <descriptor of keeper.lock, locked>

It is started by the first process that needs the server, in a session of its own. What it knows is in
`server.json`; what it is asked arrives as lines in `keeper.fifo`.

    starting ──> loading ──> ready ──> stopping ──> stopped
     │    ^         │          │
     │    └─────────┴──────────┘ the server died
     └──> failed                 (on its first start, or for the fifth time within 30 s)
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

from kizuna.store.embedded.child import HOST, ask, ask_to_end, facts_of, free_port, is_free, start_child
from kizuna.store.embedded.folder import (
    FORCED,
    RETIRE,
    STOP,
    STOP_LIMIT_S,
    TELL,
    ServerFolder,
    is_still_at,
    last_lines,
    open_lock,
    open_log,
    try_lock,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LOOK_EVERY_S = 0.2
PROBE_EVERY_S = 0.01
ORPHAN_PATIENCE_S = 1.0
CRASHES, CRASHES_WITHIN_S = 5, 30.0

# Not every server has these: they are set once it runs, and one that does not know them does without.
# The first keeps slow subscribers inside client-output-buffer-limit also with messages of 16 KiB and more.
# The second leaves out the snapshot on exit, which can take long or fail; the append-only file has it all.
OPTIONAL = (("min-string-size-avoid-copy-reply", "2147483647"), ("shutdown-on-sigterm", "nosave"))


class CannotKeep(Exception):
    """There is no server, and trying again would not help: why, and what to do."""

    def __init__(self, reason: str, hint: str) -> None:
        super().__init__(reason, hint)
        self.reason, self.hint = reason, hint


class Keeper:
    def __init__(self, folder: ServerFolder, start_id: str, plan: dict[str, Any]) -> None:
        self._folder = folder
        self._plan = plan
        self._record: dict[str, Any] = {
            "state": "starting",
            "reason": "",
            "hint": "",
            "start_id": start_id,
            "keeper_pid": os.getpid(),
            "pid": 0,
            "host": HOST,
            "port": 0,
            "version": "",
            "profile": plan["profile"],
            "started_at": 0.0,
        }
        self._is_unwritten = False
        self._server: subprocess.Popen[bytes] | None = None
        self._server_wanted_at = time.monotonic()
        self._log_starts_at = 0
        self._was_ready = False
        self._crashes: list[float] = []
        self._unused_since: float | None = None
        self._told_to_end = False

    def run(self, keeper_lock: int) -> None:
        """Return when the server is gone, for whatever reason; the record says which."""
        self._keeper_lock = keeper_lock
        self._users_lock = open_lock(self._folder.users_lock)
        self._signals = self._open_signals()
        self._former_port = self._folder.read_record().get("port", 0)
        self._folder.pin.unlink(missing_ok=True)
        self._write_record()
        # Last, since from here on we are alive to the others, and what they read must be ours.
        self._requests, self._requests_writer = self._folder.open_requests()
        try:
            reason = self._keep()
            self._change(state="stopping", reason=reason)
            self._stop_server()
            self._change(state="stopped", pid=0)
        except CannotKeep as problem:
            self._stop_server()
            self._change(state="failed", reason=problem.reason, hint=problem.hint, pid=0)
        except OSError as error:
            self._stop_server()
            hint = f"look at {self._folder.keeper_log}"
            self._change(state="failed", reason=f"its keeper failed: {error}", hint=hint, pid=0)
            raise

    def _keep(self) -> str:
        """Run the server until there is a reason to stop it, and return that."""
        while True:
            self._look_after_server()
            if reason := self._reason_to_stop():
                return reason
            self._wait_for_news(LOOK_EVERY_S if self._record["state"] == "ready" else PROBE_EVERY_S)

    # The server

    def _look_after_server(self) -> None:
        if self._server is None:
            self._try_to_start()
        elif self._server.poll() is not None:
            self._note_the_end(self._server.returncode)
        elif self._record["state"] != "ready":
            self._probe()

    def _try_to_start(self) -> None:
        lock = open_lock(self._folder.server_lock)
        try:
            if try_lock(lock, fcntl.LOCK_EX):
                self._start(lock)
            else:
                self._wait_for_former_server()
        finally:
            # From here on only the server holds it, and whatever the server forks to write its files.
            os.close(lock)

    def _wait_for_former_server(self) -> None:
        """It lost its keeper, and the system told it to end; where systems cannot do that, we do."""
        waited_s = time.monotonic() - self._server_wanted_at
        if waited_s > STOP_LIMIT_S:
            raise CannotKeep(
                f"another server still runs on {self._folder.path}",
                "end it, or choose another folder with KIZUNA_EMBEDDED__FOLDER",
            )
        if waited_s > ORPHAN_PATIENCE_S and self._former_port:
            with contextlib.suppress(OSError):  # it may end while we ask, and is waited for in any case
                ask_to_end(self._former_port, self._folder.data)

    def _start(self, lock: int) -> None:
        port = self._choose_port()
        # Not written again after a crash: that may have happened because the disk is full.
        if port != self._record["port"]:
            self._folder.write(self._folder.configuration, f"{self._plan['configuration']}port {port}\n")
        with open_log(self._folder.server_log) as log:
            self._log_starts_at = log.seek(0, os.SEEK_END)
            try:
                self._server = start_child(self._plan["binary"], self._folder.configuration, log, lock)
            except (OSError, subprocess.SubprocessError) as error:
                raise CannotKeep(
                    f"{self._plan['binary']} cannot be run: {error}",
                    "name a valkey-server or redis-server with KIZUNA_EMBEDDED__BINARY",
                ) from error
        self._server_wanted_at = time.monotonic()
        self._former_port = port
        self._change(state="starting", pid=self._server.pid, port=port, started_at=time.time())

    def _choose_port(self) -> int:
        # After a crash, clients look where it was before.
        wanted: int = self._plan["port"] or self._record["port"]
        if wanted and is_free(wanted):
            return wanted
        if self._plan["port"] == 0:
            return free_port()
        raise CannotKeep(
            f"port {wanted} is taken by another program",
            "end that one, or choose another port with KIZUNA_EMBEDDED__PORT (0 picks a free one)",
        )

    def _probe(self) -> None:
        try:
            answer = ask(self._record["port"], "PING")
            if answer == "+PONG":
                self._enter_service()
        except OSError:
            answer = ""
        if answer.startswith("-LOADING"):
            # It answers now and then: only from here on does silence count.
            self._server_wanted_at = time.monotonic()
            self._change(state="loading")
        elif self._record["state"] != "ready":
            self._refuse_to_wait_for_ever()

    def _enter_service(self) -> None:
        """Ready is what answers, provided it is our own child and not somebody else on that port."""
        port = self._record["port"]
        facts = facts_of(port)
        if facts.get("process_id") != str(self._record["pid"]):
            return
        for name, value in OPTIONAL:
            answer = ask(port, "CONFIG", "SET", name, value)
            if answer != "+OK":
                say(f"{name} is not set: {answer}")
        self._was_ready = True
        version = facts.get("valkey_version") or facts.get("redis_version", "")
        self._change(state="ready", version=f"{facts.get('server_name', 'redis')} {version}")

    def _refuse_to_wait_for_ever(self) -> None:
        limit_s = self._plan["start_timeout_s"]
        if time.monotonic() - self._server_wanted_at > limit_s:
            raise CannotKeep(
                f"{self._plan['binary']} gave no answer on port {self._record['port']} for {limit_s:g}s",
                f"look at {self._folder.server_log}, or raise KIZUNA_EMBEDDED__START_TIMEOUT_S",
            )

    def _note_the_end(self, status: int) -> None:
        """One that never worked will not work now either; one that did is started again, within limits."""
        how = f"signal {-status}" if status < 0 else f"status {status}"
        say(f"server {self._record['pid']} ended with {how}")
        self._server = None
        self._server_wanted_at = now = time.monotonic()
        self._crashes = [at for at in self._crashes if now - at < CRASHES_WITHIN_S] + [now]
        if not self._was_ready and not self._lost_the_race_for_a_free_port():
            self._give_up(f"{self._plan['binary']} ended with {how} before it was ready")
        if len(self._crashes) >= CRASHES:
            self._give_up(f"it died {CRASHES} times within {CRASHES_WITHIN_S:g}s, at last with {how}")
        self._change(state="starting", pid=0)

    def _lost_the_race_for_a_free_port(self) -> bool:
        return self._plan["port"] == 0 and not is_free(self._record["port"])

    def _give_up(self, reason: str) -> None:
        words = last_lines(self._folder.server_log, since=self._log_starts_at)
        raise CannotKeep(f"{reason}, saying: {words or 'nothing'}", f"look at {self._folder.server_log}")

    def _stop_server(self) -> None:
        if self._server is None or self._server.poll() is not None:
            return
        self._server.terminate()
        try:
            self._server.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            say(f"server {self._record['pid']} did not end within {STOP_LIMIT_S:g}s and is killed")
            self._server.kill()
            self._server.wait()

    # Its users

    def _reason_to_stop(self) -> str:
        asked = self._read_requests()
        if TELL in asked or self._is_unwritten:
            self._write_record()
        if self._told_to_end:
            return "the keeper was told to end"
        if STOP in asked:
            return FORCED
        if not is_still_at(self._keeper_lock, self._folder.keeper_lock):
            return "the folder was removed"
        if RETIRE in asked and self._someone_sees_us_out():
            return "its last user left"
        return "unused" if self._is_unused() else ""

    def _someone_sees_us_out(self) -> bool:
        """Who asks us to retire holds users.lock exclusively until we are gone, so we get no share of it."""
        shared = try_lock(self._users_lock, fcntl.LOCK_SH)
        if shared:
            fcntl.flock(self._users_lock, fcntl.LOCK_UN)
        return not shared

    def _is_unused(self) -> bool:
        """If so, users.lock stays ours until we end: a newcomer waits instead of meeting a dying server."""
        if not try_lock(self._users_lock, fcntl.LOCK_EX):
            self._unused_since = None
            return False
        now = time.monotonic()
        self._unused_since = self._unused_since or now
        if now - self._unused_since >= self._plan["linger_s"] and not self._folder.pin.exists():
            return True
        fcntl.flock(self._users_lock, fcntl.LOCK_UN)
        return False

    # News and records

    def _open_signals(self) -> int:
        """A descriptor that becomes readable with each signal, so that one `select` waits for everything."""
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: self._tell_to_end())
        return reader

    def _tell_to_end(self) -> None:
        self._told_to_end = True

    def _wait_for_news(self, longest_s: float) -> None:
        ready, _, _ = select.select([self._requests, self._signals], [], [], longest_s)
        if self._signals in ready:
            os.read(self._signals, 4096)

    def _read_requests(self) -> list[bytes]:
        try:
            return os.read(self._requests, 65536).split()
        except BlockingIOError:
            return []

    def _change(self, **facts: Any) -> None:
        if any(self._record[name] != value for name, value in facts.items()):
            self._record.update(facts)
            say("{state}, server {pid}, port {port} {reason}".format_map(self._record))
            self._write_record()

    def _write_record(self) -> None:
        try:
            self._folder.write_record(self._record)
            self._is_unwritten = False
        except OSError as error:
            # A full disk or a removed folder must not end a server that works. It is tried again at each look.
            if not self._is_unwritten:
                say(f"server.json is not written: {error}")
            self._is_unwritten = True


def say(message: str) -> None:
    line = f"{time.strftime('%Y-%m-%dT%H:%M:%S%z')} keeper {os.getpid()}: {message}\n"
    # A full disk must not end a server that works, here neither.
    with contextlib.suppress(OSError):
        os.write(sys.stderr.fileno(), line.encode(errors="replace"))


def main() -> None:
    folder, start_id, plan, keeper_lock = sys.argv[1:]
    # Our starter waits for the first of these two processes, and is not left with a zombie later.
    if os.fork():
        os._exit(0)
    os.umask(0o077)
    os.set_inheritable(int(keeper_lock), False)
    Keeper(ServerFolder(Path(folder)), start_id, json.loads(plan)).run(int(keeper_lock))


if __name__ == "__main__":
    main()
