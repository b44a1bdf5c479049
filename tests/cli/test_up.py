from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from kizuna.cli.exit_codes import BUSY, CONFLICT, INTERRUPTED, UNAVAILABLE
from kizuna.testing import ServerProcess
from kizuna.testing.processes import processes_on
from kizuna.testing.servers import free_port
from kizuna.testing.waiting import blocking_until

READY_WITHIN_S = 2.0


class Up:
    """`kizuna up --json` as a process of its own."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, f"it ended: {process.communicate()[1]}"
        self.places: dict[str, Any] = json.loads(line)

    def get(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(self.places["probes"] + path, timeout=30) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def end(self, number: signal.Signals) -> tuple[int, str]:
        """The exit code and what it said on stderr."""
        self.process.send_signal(number)
        _, said = self.process.communicate(timeout=120)
        return self.process.returncode, said


@pytest.fixture
def environment(server_folder: Path, tmp_path: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("KIZUNA_")}
    return kept | {
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "KIZUNA_EMBEDDED__FOLDER": str(server_folder),
        "KIZUNA_EMBEDDED__PORT": "0",
        "KIZUNA_PROBES__PORT": "0",
    }


@contextmanager
def started(environment: dict[str, str], *options: str) -> Iterator[Up]:
    process = subprocess.Popen(
        [sys.executable, "-m", "kizuna", *options, "up", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    with ExitStack() as cleanup:
        cleanup.callback(process.communicate)
        cleanup.callback(process.kill)
        yield Up(process)


def ended(environment: dict[str, str], *options: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "kizuna", *options, "up"]
    return subprocess.run(line, capture_output=True, text=True, env=environment, timeout=120, check=False)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_says_where_everything_is_and_leaves_nothing_behind(
    environment: dict[str, str], server_folder: Path, number: signal.Signals
) -> None:
    with started(environment) as up:
        assert up.places["server"].startswith("redis://127.0.0.1:")
        assert up.places["data"] == str(server_folder)
        assert up.places["profile"] == "fast"
        assert up.places["pid"] == up.process.pid
        assert up.get("/readyz") == (200, '{"status": "ready", "problems": []}\n')
        assert "kizuna_server_up 1.0\n" in up.get("/metrics")[1]

        code, said = up.end(number)

    assert code == 0
    assert said.startswith("Ctrl-C stops it.\n")
    assert said.endswith(f"Stopped by {number.name}.\n")
    assert processes_on(server_folder) == {}


def test_it_is_ready_within_two_seconds(environment: dict[str, str]) -> None:
    def start_and_stop_s() -> float:
        began = time.monotonic()
        with started(environment) as up:
            ready_s = time.monotonic() - began
            up.end(signal.SIGTERM)
        return ready_s

    # One of ten: what else runs on the machine is not what is looked at.
    assert any(start_and_stop_s() < READY_WITHIN_S for _ in range(10))


def test_a_person_gets_the_same_as_lines(environment: dict[str, str], server: ServerProcess) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "kizuna", "--url", server.url, "up"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environment,
    )
    assert process.stdout is not None
    try:
        lines = [process.stdout.readline().split() for _ in range(3)]
    finally:
        process.terminate()
        process.communicate(timeout=120)

    assert [line[0] for line in lines] == ["server", "probes", "pid"]
    assert lines[0][1] == server.url


def test_when_the_server_is_killed_it_lives_on_and_says_so(environment: dict[str, str], server_folder: Path) -> None:
    with started(environment) as up:
        record = json.loads((server_folder / "server.json").read_text())
        os.kill(record["pid"], signal.SIGKILL)

        blocking_until(lambda: "kizuna_store_connections_total 2.0\n" in up.get("/metrics")[1])
        blocking_until(lambda: up.get("/readyz")[0] == 200)
        code, said = up.end(signal.SIGINT)

    assert code == 0
    assert f" warning connection lost server=127.0.0.1:{record['port']} reason=" in said
    assert f" reconnected server=127.0.0.1:{record['port']}" in said


def test_a_server_that_stays_away_makes_it_not_ready_but_alive(
    environment: dict[str, str], fresh_server: ServerProcess
) -> None:
    with started(environment, "--url", fresh_server.url) as up:
        fresh_server.kill()

        blocking_until(lambda: up.get("/readyz")[0] == 503)
        assert fresh_server.address in up.get("/readyz")[1]
        assert up.get("/healthz")[0] == 200
        assert "kizuna_server_up 0.0\n" in up.get("/metrics")[1]
        assert up.end(signal.SIGTERM)[0] == 0


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, INTERRUPTED), (signal.SIGTERM, -signal.SIGTERM)])
def test_a_second_signal_ends_it_at_once(
    environment: dict[str, str], server_folder: Path, number: signal.Signals, code: int
) -> None:
    with started(environment) as up:
        server_pid = json.loads((server_folder / "server.json").read_text())["pid"]
        # A server that does not end: without a second signal we would wait for it.
        os.kill(server_pid, signal.SIGSTOP)
        up.process.send_signal(number)
        assert up.process.stderr is not None
        while up.process.stderr.readline() != f"Stopped by {number.name}.\n":
            pass

        up.process.send_signal(number)
        assert up.process.wait(timeout=120) == code
        os.kill(server_pid, signal.SIGCONT)


def test_two_share_the_server_and_the_last_one_ends_it(environment: dict[str, str], server_folder: Path) -> None:
    with started(environment) as first, started(environment) as second:
        assert first.places["server"] == second.places["server"]

        assert first.end(signal.SIGINT)[0] == 0
        assert second.get("/readyz")[0] == 200
        assert processes_on(server_folder) != {}
        assert second.end(signal.SIGINT)[0] == 0

    assert processes_on(server_folder) == {}


def test_it_does_not_start_on_a_server_that_evicts(environment: dict[str, str], fresh_server: ServerProcess) -> None:
    fresh_server.call("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")

    process = ended(environment, "--url", fresh_server.url)

    assert process.returncode == CONFLICT
    assert "CONFIG SET maxmemory-policy noeviction" in process.stderr
    assert process.stdout == ""


def test_it_does_not_start_without_a_server(environment: dict[str, str]) -> None:
    url = f"redis://127.0.0.1:{free_port()}"

    process = ended(environment, "--url", url, "--set", "store.timeout_s=1")

    assert (process.returncode, process.stdout) == (UNAVAILABLE, "")
    assert process.stderr.splitlines()[-1].startswith("Error: no connection (Connection refused)")


@pytest.mark.parametrize(("verb", "said_before"), [("up", []), ("doctor", ["Looking at embedded://"])])
def test_a_server_that_cannot_start_is_told_once_and_not_in_the_log_besides(
    environment: dict[str, str], server: ServerProcess, verb: str, said_before: list[str]
) -> None:
    line = [sys.executable, "-m", "kizuna", "--set", f"embedded.port={server.port}", verb]
    process = subprocess.run(line, capture_output=True, text=True, env=environment, timeout=120, check=False)
    told = process.stdout + process.stderr

    assert told.count(f"the embedded server did not start: port {server.port} is taken") == 1
    assert process.stderr.splitlines()[: len(said_before)] == said_before
    assert "not connected" not in told


def test_a_port_that_is_taken_is_told_and_the_server_goes_again(
    environment: dict[str, str], server_folder: Path, server: ServerProcess
) -> None:
    process = ended(environment, "--set", f"probes.port={server.port}")

    assert process.returncode == BUSY
    assert process.stderr.splitlines()[-1] == (
        f"Error: cannot listen on 127.0.0.1:{server.port} (Address already in use);"
        " set probes.host and probes.port to what is free, as port 0 always is"
    )
    assert processes_on(server_folder) == {}
