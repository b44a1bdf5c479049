from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kizuna.errors import Refused, ServerNotStarted
from kizuna.testing import ServerProcess, servers
from kizuna.testing.waiting import blocking_until


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_a_started_server_answers_and_a_closed_one_leaves_nothing() -> None:
    with ServerProcess() as server:
        pid, folder = server.pid, server.folder
        assert server.call("PING") == b"PONG"
        assert server.url == f"redis://127.0.0.1:{server.port}/0"
        assert server.alive

    assert not server.alive
    assert is_gone(pid)
    assert not folder.exists()
    server.close()


def test_port_and_folder_stay_the_same_over_a_restart() -> None:
    with ServerProcess(persistent=True) as server:
        port, folder, pid = server.port, server.folder, server.pid
        server.call("SET", "kept", "yes")
        server.restart()

        assert (server.port, server.folder) == (port, folder)
        assert server.pid != pid
        assert server.call("GET", "kept") == b"yes"


def test_a_killed_persistent_server_has_what_it_acknowledged() -> None:
    with ServerProcess(persistent=True) as server:
        server.call("SET", "kept", "yes")
        server.kill()
        assert not server.alive
        server.start()

        assert server.call("GET", "kept") == b"yes"


def test_without_persistence_a_restart_forgets() -> None:
    with ServerProcess() as server:
        server.call("SET", "kept", "no")
        server.restart()

        assert server.call("GET", "kept") is None


def test_a_paused_server_answers_nobody_until_it_is_resumed() -> None:
    with ServerProcess() as server:
        server.pause()
        with pytest.raises(TimeoutError):
            server.call("PING", timeout_s=0.05)
        server.resume()
        assert server.call("PING") == b"PONG"

        server.pause()
        server.stop()
        assert not server.alive


def test_a_server_that_died_by_itself_is_noticed_and_can_be_started_again() -> None:
    with ServerProcess() as server:
        os.kill(server.pid, signal.SIGKILL)
        blocking_until(lambda: not server.alive)

        with pytest.raises(ProcessLookupError, match="does not run"):
            server.pause()
        server.start()
        assert server.call("PING") == b"PONG"
        with pytest.raises(ServerNotStarted, match="already runs"):
            server.start()


def test_password_users_and_unix_socket() -> None:
    users = {"reader": "on >secret ~* +@read +@connection"}
    with ServerProcess(password="hard", users=users, unix_socket=True) as server:
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(server.socket_path))
            for command, answer in [
                (b"PING\r\n", b"-NOAUTH"),
                (b"AUTH hard\r\n", b"+OK"),
                (b"AUTH reader secret\r\n", b"+OK"),
                (b"SET a 1\r\n", b"-NOPERM"),
            ]:
                client.sendall(command)
                assert client.recv(1000).startswith(answer)
        assert server.call("SET", "a", 1) == b"OK"
        server.restart()
        assert server.call("ACL", "WHOAMI") == b"kizuna-testing"


def test_options_of_the_configuration_file_win() -> None:
    with ServerProcess(config={"maxmemory": "10mb", "appendonly": "yes"}) as server:
        assert server.call("CONFIG", "GET", "maxmemory") == [b"maxmemory", b"10485760"]
        assert server.call("CONFIG", "GET", "appendonly") == [b"appendonly", b"yes"]


def test_an_unknown_option_fails_with_the_servers_own_words(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path, config={"maxmemry": "10mb"})

    with pytest.raises(ServerNotStarted, match=">>> 'maxmemry \"10mb\"'"):
        server.start()


def test_another_port_is_tried_if_somebody_took_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with ServerProcess() as first:
        ports = iter([first.port, servers.free_port()])
        monkeypatch.setattr(servers, "free_port", lambda: next(ports))

        with ServerProcess() as second:
            assert second.port != first.port
            assert second.info("server")["process_id"] == str(second.pid)


def test_workers_of_xdist_do_not_take_each_others_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is to sit at the port of a server, or a proxy, that comes back in a moment."""
    monkeypatch.setenv("PYTEST_XDIST_WORKER_COUNT", "3")
    ports = []
    for worker in ("gw0", "gw1", "gw2"):
        monkeypatch.setenv("PYTEST_XDIST_WORKER", worker)
        ports.append({servers.free_port() for _ in range(100)})

    assert all(ports)
    assert not ports[0] & ports[1] | ports[1] & ports[2] | ports[0] & ports[2]


def test_many_can_be_started_at_once_from_threads_that_end() -> None:
    several = [ServerProcess() for _ in range(4)]
    with ThreadPoolExecutor() as threads:
        list(threads.map(ServerProcess.start, several))

    assert {server.call("PING") for server in several} == {b"PONG"}
    for server in several:
        server.close()


def test_a_refusal_is_raised_with_the_servers_words(server: ServerProcess) -> None:
    with pytest.raises(Refused, match="wrong number of arguments"):
        server.call("GET")


def test_many_commands_can_share_a_connection(server: ServerProcess, scratch: str) -> None:
    with server.connect() as conversation:
        numbers = [conversation.call("INCR", f"{scratch}n") for _ in range(3)]
        assert conversation.call("GET", f"{scratch}missing") is None

    assert numbers == [1, 2, 3]


def test_commands_that_are_sent_together_are_answered_in_order(server: ServerProcess, scratch: str) -> None:
    key = f"{scratch}counted"
    with server.connect() as conversation:
        assert conversation.call_all([("INCR", key)] * 1000) == list(range(1, 1001))
        assert conversation.call_all([]) == []
        with pytest.raises(Refused, match="'LPOP'"):
            conversation.call_all([("GET", key), ("LPOP", key)])


@pytest.mark.parametrize("given", [True, False])
def test_a_server_dies_with_the_process_that_started_it(tmp_path: Path, given: bool) -> None:
    program = (
        "import sys, pathlib; from kizuna.testing import ServerProcess\n"
        "server = ServerProcess(*map(pathlib.Path, sys.argv[1:])).start()\n"
        "print(server.pid, server.folder, flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", program, *([str(tmp_path)] if given else [])]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        pid, folder = process.stdout.readline().split()
        assert not is_gone(int(pid))
        process.kill()

    blocking_until(lambda: is_gone(int(pid)))
    if given:
        assert (tmp_path / "server.log").exists()
    else:
        blocking_until(lambda: not Path(folder).exists())
