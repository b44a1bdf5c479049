from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kizuna.cli import command
from kizuna.cli.exit_codes import BAD_SETTINGS, BUSY, FAILURE
from kizuna.testing.commands import Command


@pytest.fixture
def options(server_url: str, root: str) -> list[str]:
    roots = [f"roots.system={root}", f"roots.coordination={root}", f"roots.memory={root}", "probes.port=0"]
    return ["--url", server_url, *[text for setting in roots for text in ("--set", setting)]]


@pytest.fixture
def serve(options: list[str], start_command: Callable[..., Command]) -> Callable[..., Command]:
    return partial(start_command, *options, "memory", "serve", "--json", "--port", "0")


def ask(url: str, body: Any = None, token: str = "") -> tuple[int, Any]:
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
    data = None if body is None else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data, headers), timeout=120) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def test_it_serves_until_it_is_told_to_stop(serve: Callable[..., Command]) -> None:
    api = serve()
    facts = api.facts

    assert facts["needs_token"] is False
    status, item = ask(f"{facts['api']}/items", {"type": "fact", "content": "Hi"})
    assert (status, item["content"]) == (201, "Hi")
    assert ask(f"{facts['api']}/items/{item['id']}") == (200, item)
    code, said = api.end(signal.SIGTERM)
    assert code == 0
    first, *_, last = said.splitlines()
    assert (first, last) == ("Ctrl-C stops it.", "Stopped by SIGTERM.")


def test_with_a_token_it_listens_to_others(
    options: list[str], start_command: Callable[..., Command], tmp_path: Path
) -> None:
    (tmp_path / "token").write_text("sesame\n")
    with_token = [*options, "--set", f"memory.rest_token_file={tmp_path / 'token'}"]
    facts = start_command(*with_token, "memory", "serve", "--json", "--port", "0", "--host", "0.0.0.0").facts

    assert facts["needs_token"] is True
    url = facts["api"].replace("0.0.0.0", "127.0.0.1")
    assert ask(f"{url}/items")[0] == 401
    assert ask(f"{url}/items", token="sesame") == (200, {"items": [], "cursor": "", "from_backup": False})


def test_it_can_be_probed(serve: Callable[..., Command]) -> None:
    facts = serve("--probes").facts

    assert ask(f"{facts['probes']}/readyz") == (200, {"status": "ready", "problems": []})


def test_without_a_token_it_does_not_listen_to_others(options: list[str]) -> None:
    ended = CliRunner().invoke(command, [*options, "memory", "serve", "--port", "0", "--host", "0.0.0.0"])

    assert ended.exit_code == BAD_SETTINGS
    assert ended.stderr.startswith("Error: memory.rest_host = '0.0.0.0' lets others in than this machine")


def test_a_port_that_is_taken_is_told(serve: Callable[..., Command], options: list[str]) -> None:
    port = serve().facts["api"].rpartition(":")[2]
    ended = CliRunner().invoke(command, [*options, "memory", "serve", "--port", port])

    assert ended.exit_code == BUSY
    assert ended.stderr.startswith(f"Error: cannot listen on 127.0.0.1:{port} (Address already in use)")


def test_what_is_not_installed_is_told(options: list[str]) -> None:
    program = f"""
import sys
sys.modules["starlette"] = None  # as if it were not installed
sys.argv = ["kizuna", *{options!r}, "memory", "serve"]
from kizuna.cli import main
main()
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)

    assert ended.returncode == FAILURE
    assert "pip install 'kizuna[rest]' brings it" in ended.stderr
