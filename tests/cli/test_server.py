from __future__ import annotations

import asyncio
import json
import os
import socket
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kizuna.cli import command
from kizuna.cli.exit_codes import BUSY, NOT_FOUND, UNAVAILABLE
from kizuna.settings import EmbeddedSettings
from kizuna.store.embedded.server import EmbeddedServer


@pytest.fixture(autouse=True)
def only_the_folder_is_set(server_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in [name for name in os.environ if name.startswith("KIZUNA_")]:
        monkeypatch.delenv(variable)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("KIZUNA_EMBEDDED__FOLDER", str(server_folder))
    monkeypatch.setenv("KIZUNA_EMBEDDED__PORT", "0")
    monkeypatch.chdir(tmp_path)


def kizuna(*arguments: str) -> Result:
    return CliRunner().invoke(command, arguments)


def read(*arguments: str) -> dict[str, Any]:
    row = json.loads(kizuna(*arguments, "--json").stdout)
    assert isinstance(row, dict)
    return row


def test_a_started_server_stays_until_it_is_stopped(server_folder: Path) -> None:
    started = kizuna("server", "start", "--json")
    assert started.exit_code == 0
    assert started.stderr == "It stays until `kizuna server stop`.\n"

    row = read("server", "status")
    assert row == json.loads(started.stdout) | {"uptime_s": row["uptime_s"]}
    assert (row["state"], row["pinned"], row["users"]) == ("ready", True, [])
    assert row["folder"] == str(server_folder)
    socket.create_connection((row["host"], row["port"])).close()

    assert read("server", "start")["pid"] == row["pid"]

    stopped = kizuna("server", "stop")
    assert (stopped.exit_code, stopped.stdout, stopped.stderr) == (0, "", "The server is gone.\n")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((row["host"], row["port"]))


def test_stopping_what_does_not_run_is_no_error() -> None:
    stopped = kizuna("server", "stop", "--json")

    assert (stopped.exit_code, stopped.stderr) == (0, "No server was running.\n")
    assert json.loads(stopped.stdout)["state"] == "stopped"


def test_status_without_a_server_has_an_exit_code_of_its_own(server_folder: Path) -> None:
    found = kizuna("server", "status")

    assert found.exit_code == NOT_FOUND
    assert "state       stopped\n" in found.stdout
    assert f"folder      {server_folder}\n" in found.stdout
    assert read("server", "status")["port"] is None


def test_one_in_use_is_stopped_only_by_force(server_folder: Path) -> None:
    user = EmbeddedServer(EmbeddedSettings(folder=str(server_folder), port=0))
    asyncio.run(user.attach())
    assert read("server", "status")["users"] == [os.getpid()]

    refused = kizuna("server", "stop")
    assert refused.exit_code == BUSY
    assert f"is still used by pid {os.getpid()} (" in refused.stderr
    assert read("server", "status")["state"] == "ready"

    assert kizuna("server", "stop", "--force").exit_code == 0
    assert kizuna("server", "status").exit_code == NOT_FOUND
    asyncio.run(user.detach())


def test_a_server_that_cannot_start_is_an_error_and_stays_in_the_status() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        started = kizuna("--set", f"embedded.port={port}", "server", "start")

    assert started.exit_code == UNAVAILABLE
    assert started.stdout == ""
    assert started.stderr.startswith(
        f"Error: the embedded server did not start: port {port} is taken by another program; "
    )
    assert read("server", "status")["state"] == "failed"
    assert read("server", "status")["reason"] == f"port {port} is taken by another program"
