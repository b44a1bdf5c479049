"""The embedded server as its users see it: coming, going, settings, and what is said when it cannot start."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Awaitable
from pathlib import Path

import pytest

import kizuna
from kizuna.errors import ServerInUse, ServerNotStarted
from kizuna.settings import EmbeddedSettings
from kizuna.store.embedded.server import EmbeddedServer, Running
from kizuna.store.embedded.setup import server_binary
from kizuna.store.embedded.setup import server_folder as folder_of
from kizuna.testing import eventually
from kizuna.testing.processes import processes_on
from kizuna.testing.resp import Conversation


def embedded(folder: Path, **settings: object) -> EmbeddedServer:
    return EmbeddedServer(EmbeddedSettings(**{"folder": str(folder), "port": 0, "linger_s": 0.2} | settings))  # type: ignore[arg-type]


def call(running: Running, *command: str) -> object:
    with Conversation(running.host, running.port) as conversation:
        return conversation.call(*command)


def option(running: Running, name: str) -> bytes:
    return dict(_pairs(call(running, "CONFIG", "GET", name)))[name.encode()]


def _pairs(reply: object) -> list[tuple[bytes, bytes]]:
    assert isinstance(reply, list)
    return list(zip(reply[::2], reply[1::2], strict=True))


async def test_the_first_user_starts_it_and_others_find_the_same_one(server_folder: Path) -> None:
    first, second = embedded(server_folder), embedded(server_folder)

    started = await first.attach()
    found = await second.attach()

    assert started == found
    assert await first.attach() == started
    assert call(found, "PING") == b"PONG"
    await first.detach()
    assert call(found, "PING") == b"PONG"
    await second.detach()


async def test_it_is_gone_when_the_last_user_has_left(server_folder: Path) -> None:
    server = embedded(server_folder, linger_s=60.0)
    running = await server.attach()

    await server.detach()

    assert server.status().state == "stopped"
    assert running.pid not in processes_on(server_folder)
    with pytest.raises(ConnectionRefusedError):
        Conversation(running.host, running.port)
    await server.detach()


async def test_data_outlives_the_server(server_folder: Path) -> None:
    server = embedded(server_folder)
    call(await server.attach(), "SET", "word", "kept")
    await server.detach()

    running = await server.attach()

    assert call(running, "GET", "word") == b"kept"
    await server.detach()


async def test_who_comes_while_it_stops_gets_a_new_one(server_folder: Path) -> None:
    leaving, coming = embedded(server_folder), embedded(server_folder)
    await leaving.attach()
    for turn in range(5):
        _, running = await asyncio.gather(leaving.detach(), coming.attach())
        assert call(running, "SET", "turn", str(turn)) == b"OK"
        assert coming.status().state == "ready"
        leaving, coming = coming, leaving
    await leaving.detach()


async def test_it_lingers_for_those_who_left_without_stopping_it(server_folder: Path) -> None:
    server = embedded(server_folder, linger_s=0.5)
    before = await server.attach()
    await server.detach(stop_if_last=False)

    again = await server.attach()
    assert again.pid == before.pid

    await server.detach(stop_if_last=False)
    await eventually(lambda: server.status().state == "stopped")


async def test_a_pinned_one_stays_until_it_is_stopped(server_folder: Path) -> None:
    server, unpinned = embedded(server_folder), embedded(server_folder / "unpinned")
    pinned = await server.pin()

    assert (await server.attach()).pid == pinned.pid
    await server.detach()
    await unpinned.attach()
    await unpinned.detach(stop_if_last=False)
    await eventually(lambda: unpinned.status().state == "stopped")

    assert server.status().pinned
    assert server.status().pid == pinned.pid

    assert await server.stop()
    assert server.status().state == "stopped"
    assert not await server.stop()


async def test_an_old_pin_does_not_bind_a_new_server(server_folder: Path) -> None:
    server = embedded(server_folder)
    await server.pin()
    await server.stop(force=True)
    (server_folder / "pinned").touch()

    await server.attach()

    assert not server.status().pinned
    await server.detach()
    assert server.status().state == "stopped"


async def test_stopping_one_in_use_is_refused_and_unpins_it(server_folder: Path) -> None:
    user, operator = embedded(server_folder), embedded(server_folder)
    await operator.pin()
    await user.attach()

    with pytest.raises(ServerInUse, match=rf"still used by pid {os.getpid()} \(.+\); end that first"):
        await operator.stop()

    assert user.status().state == "ready"
    await user.detach()
    assert user.status().state == "stopped"


async def test_after_a_forced_stop_its_users_do_not_start_it_again(server_folder: Path) -> None:
    user, operator = embedded(server_folder), embedded(server_folder)
    await user.attach()
    stopping = asyncio.create_task(operator.stop(force=True))

    with pytest.raises(ServerNotStarted, match="stopped with `kizuna server stop --force`; start it with"):
        await eventually(lambda: _no_longer(user.attach()), every_s=0)
    assert await stopping

    pinned = await operator.pin()
    assert await user.attach() == pinned
    await user.detach()
    await operator.stop()


async def test_status_tells_what_is_known_without_using_it(server_folder: Path) -> None:
    server, onlooker = embedded(server_folder), embedded(server_folder)
    assert onlooker.status() == ("stopped", "", server_folder, "", 0, 0, 0, "", "", 0.0, False, ())

    running = await server.attach()

    status = onlooker.status()
    assert (status.state, status.port, status.pid) == ("ready", running.port, running.pid)
    assert status.version.startswith("valkey ")
    assert status.users == (os.getpid(),)
    assert 0 <= status.uptime_s < 60
    await server.detach()


async def test_the_options_that_we_promise_are_set(server_folder: Path) -> None:
    server = embedded(server_folder, maxmemory="64mb")
    running = await server.attach()

    assert option(running, "bind") == b"127.0.0.1 -::1"
    assert option(running, "protected-mode") == b"yes"
    assert option(running, "save") == b"900 1"
    assert option(running, "appendonly") == b"yes"
    assert option(running, "appendfsync") == b"everysec"
    assert option(running, "maxmemory") == b"67108864"
    assert option(running, "maxmemory-policy") == b"noeviction"
    assert set(option(running, "notify-keyspace-events")) == set(b"K$gx")
    assert option(running, "min-string-size-avoid-copy-reply") == b"2147483647"
    assert option(running, "shutdown-on-sigterm") == b"nosave"
    await server.detach()


async def test_the_folder_is_for_its_user_alone(server_folder: Path) -> None:
    server = embedded(server_folder)
    await server.attach()

    assert _open_to_others(server_folder) == []
    await server.detach()


def _open_to_others(folder: Path) -> list[Path]:
    return [file for file in (folder, *folder.rglob("*")) if stat.S_IMODE(file.stat().st_mode) & 0o077]


async def test_the_durable_profile_syncs_before_each_answer(server_folder: Path) -> None:
    server = embedded(server_folder, profile="durable")
    running = await server.attach()

    assert running.profile == "durable"
    assert option(running, "appendfsync") == b"always"
    assert (await embedded(server_folder, profile="fast").attach()).pid == running.pid
    await server.stop(force=True)


async def test_who_needs_durable_does_not_settle_for_fast(server_folder: Path) -> None:
    server = embedded(server_folder)
    await server.attach()

    with pytest.raises(ServerNotStarted, match=r"profile fast already runs on .* and durable was asked for"):
        await embedded(server_folder, profile="durable").attach()

    await server.detach()
    assert server.status().state == "stopped"


async def test_a_folder_may_have_any_name(server_folder: Path) -> None:
    server = embedded(server_folder / 'blank "quote" \\ 絆')
    running = await server.attach()

    call(running, "SET", "word", "kept")

    assert (running.folder / "data" / "appendonlydir").is_dir()
    await server.detach()


async def test_a_taken_port_is_named_with_the_setting_to_change(server_folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        server = embedded(server_folder, port=port)
        with pytest.raises(ServerNotStarted) as refused:
            await server.attach()

    assert str(refused.value) == (
        f"the embedded server did not start: port {port} is taken by another program; end that one, or choose"
        " another port with KIZUNA_EMBEDDED__PORT (0 picks a free one)"
    )
    assert server.status().state == "failed"
    assert server.status().reason == f"port {port} is taken by another program"


async def test_a_missing_binary_is_named(server_folder: Path) -> None:
    with pytest.raises(ServerNotStarted, match="/no/such/server is not an executable file; name a valkey-server"):
        await embedded(server_folder, binary="/no/such/server").attach()


async def test_a_binary_that_is_no_server_is_told_with_its_last_words(server_folder: Path, tmp_path: Path) -> None:
    binary = _script(tmp_path / "not-a-server", "echo this is not a server >&2; exit 3")

    with pytest.raises(ServerNotStarted, match=r"not-a-server ended with status 3 .*, saying: this is not a server"):
        await embedded(server_folder, binary=str(binary)).attach()


async def test_a_binary_that_never_answers_is_given_up(server_folder: Path, tmp_path: Path) -> None:
    binary = _script(tmp_path / "mute", "exec sleep 60")

    with pytest.raises(ServerNotStarted, match=r"mute gave no answer on port \d+ for 0.3s"):
        await embedded(server_folder, binary=str(binary), start_timeout_s=0.3).attach()


async def test_a_file_that_cannot_be_run_is_told(server_folder: Path, tmp_path: Path) -> None:
    binary = _script(tmp_path / "broken", "", interpreter="/no/such/interpreter")

    with pytest.raises(ServerNotStarted, match=r"broken cannot be run: .* KIZUNA_EMBEDDED__BINARY"):
        await embedded(server_folder, binary=str(binary)).attach()


async def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    in_the_way = _script(tmp_path / "file", "")

    with pytest.raises(ServerNotStarted, match=r"its folder cannot be used: .* KIZUNA_EMBEDDED__FOLDER"):
        await embedded(in_the_way).attach()


async def test_loading_may_take_longer_than_the_start_timeout(server_folder: Path, tmp_path: Path) -> None:
    server = embedded(server_folder)
    running = await server.attach()
    with Conversation(running.host, running.port) as conversation:
        for number in range(5120):
            conversation.call("SET", f"key {number}", "word")
    await server.detach()
    # While it loads, for 6 s, it answers after every 1,024 commands: so rarely that who asks hangs up now and then.
    slow = _script(tmp_path / "slow", f'exec {server_binary()} "$@" --key-load-delay 1200')

    patient = embedded(server_folder, binary=str(slow), start_timeout_s=4.0)
    attaching = asyncio.create_task(patient.attach())
    await eventually(lambda: patient.status().state == "loading", every_s=0.005)

    assert call(await attaching, "DBSIZE") == 5120
    await patient.detach()


async def test_another_server_than_the_bundled_one(server_folder: Path, redis_binary: str) -> None:
    server = embedded(server_folder, binary=redis_binary)
    running = await server.attach()

    assert running.version.startswith("redis ")
    assert option(running, "appendonly") == b"yes"
    assert "min-string-size-avoid-copy-reply is not set" in (server_folder / "keeper.log").read_text()
    await server.detach()


async def test_children_of_a_user_do_not_keep_the_server(server_folder: Path) -> None:
    server = embedded(server_folder)
    await server.attach()
    child = await asyncio.create_subprocess_exec("sleep", "60", close_fds=False)
    try:
        await server.detach()
        assert server.status().state == "stopped"
    finally:
        child.kill()
        await child.wait()


async def test_an_attach_that_is_cancelled_leaves_no_user(server_folder: Path, tmp_path: Path) -> None:
    go, begin = tmp_path / "go", f'exec {server_binary()} "$@"'
    waiting = _script(tmp_path / "waiting", f'while [ ! -e "{go}" ]; do sleep 0.05; done; {begin}')
    server = embedded(server_folder, binary=str(waiting), linger_s=0.0)
    attaching = asyncio.create_task(server.attach())
    await eventually(lambda: server.status().state == "starting")

    attaching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await attaching

    assert server.status().users == ()
    go.touch()


def test_it_works_in_a_thread_that_is_not_the_main_one(server_folder: Path) -> None:
    answers: list[object] = []
    thread = threading.Thread(target=lambda: answers.append(asyncio.run(_come_and_go(server_folder))))
    thread.start()
    thread.join()

    assert answers == [b"PONG"]


def test_it_works_under_uvloop(server_folder: Path) -> None:
    uvloop = pytest.importorskip("uvloop", reason="uvloop is not installed")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(_come_and_go(server_folder)) == b"PONG"


async def _come_and_go(folder: Path) -> object:
    server = embedded(folder)
    answer = call(await server.attach(), "PING")
    await server.detach()
    return answer


def test_the_folder_is_below_the_users_data_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert folder_of() == tmp_path / "kizuna" / "server"

    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_DATA_HOME")
    assert folder_of() == tmp_path / ".local" / "share" / "kizuna" / "server"

    monkeypatch.setenv("XDG_DATA_HOME", "relative")
    assert folder_of() == tmp_path / ".local" / "share" / "kizuna" / "server"


def test_a_home_folder_that_nobody_knows_is_told_with_the_setting_that_helps() -> None:
    with pytest.raises(ServerNotStarted) as refused:
        folder_of("~nobody-of-that-name/server")

    assert str(refused.value) == (
        "the embedded server did not start: its folder is below ~nobody-of-that-name, and there is no such home"
        " folder; set HOME, or choose another folder with KIZUNA_EMBEDDED__FOLDER"
    )


async def _no_longer(running: Awaitable[Running]) -> bool:
    await running
    return False


def _script(path: Path, text: str, *, interpreter: str = "/bin/sh") -> Path:
    path.write_text(f"#!{interpreter}\n{text}\n")
    path.chmod(0o755)
    return path


def test_a_package_that_is_only_on_the_path_is_enough(server_folder: Path, tmp_path: Path) -> None:
    """Not installed, as in a bundle: the keeper, a process of its own, finds the very same package."""
    bundle = tmp_path / "bundle"
    shutil.copytree(Path(kizuna.__file__).parent, bundle / "kizuna", ignore=shutil.ignore_patterns("__pycache__"))
    program = f"""
import asyncio, sys
sys.path[:] = [{str(bundle)!r}, *(place for place in sys.path if place != {str(Path(kizuna.__file__).parents[1])!r})]
from kizuna.settings import EmbeddedSettings
from kizuna.store.embedded.server import EmbeddedServer

async def main() -> None:
    server = EmbeddedServer(EmbeddedSettings(folder={str(server_folder)!r}, port=0))
    running = await server.attach()
    with open(f"/proc/{{running.keeper_pid}}/environ", "rb") as environment:
        print(environment.read().decode(errors="replace"))
    await server.detach()

asyncio.run(main())
"""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    outcome = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, env=environment
    )

    assert outcome.returncode == 0, outcome.stderr
    assert f"PYTHONPATH={bundle}\0" in outcome.stdout
