from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import hypothesis
import msgspec
import pytest

from kizuna.settings import MemorySettings, Settings
from kizuna.testing.leaks import assert_keys_end_as_declared, root_of, scan
from kizuna.testing.ledger import Ledger
from kizuna.testing.processes import processes_on
from kizuna.testing.servers import ServerProcess
from kizuna.testing.waiting import blocking_until

pytest_plugins = ["kizuna.testing.fixtures"]

# A shell that starts tests in the background has Ctrl-C ignored, and so would every program that they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# As it is, here or on a CI server; but a machine that is busy is not what is tested.
hypothesis.settings.register_profile(
    "patient", hypothesis.settings(), deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("patient")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Those that take a minute, and are given time for it, come first: else a worker would do the last of them when
    all others have nothing more to do."""
    items.sort(key=lambda item: item.get_closest_marker("timeout") is None)


@pytest.fixture(autouse=True)
def every_key_left_is_declared_and_ends(request: pytest.FixtureRequest) -> Iterator[None]:
    """Also where a test did not ask for `store`: whatever it left on the server that all tests share."""
    server = request.getfixturevalue("server") if "server" in request.fixturenames else None
    yield
    if not isinstance(server, ServerProcess):  # a parameter of that name
        return
    with server.connect() as conversation:
        keys = [key for key in scan(conversation, "*") if not key.startswith(b"scratch-")]
    for root in set(map(root_of, keys)):
        assert_keys_end_as_declared(server, root)


@pytest.fixture
def server_folder(tmp_path: Path) -> Iterator[Path]:
    """For an embedded server; when the test has ended, every process on it must end by itself."""
    folder = tmp_path / "server"
    yield folder
    try:
        blocking_until(lambda: not processes_on(folder))
    finally:
        for pid in processes_on(folder):
            os.kill(pid, signal.SIGKILL)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "ledger.jsonl")


@pytest.fixture
def start(programs: Path, ledger: Ledger) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Start one of the programs in a process of its own, which writes to the ledger; none outlives the test."""
    with ExitStack() as cleanup:

        def start(program: str, settings: Settings, **arguments: Any) -> subprocess.Popen[bytes]:
            line = [program, _overrides(settings), str(ledger.path), json.dumps(arguments)]
            process = subprocess.Popen([sys.executable, str(programs), *line])
            cleanup.callback(process.wait)
            cleanup.callback(process.kill)
            return process

        yield start


def _overrides(settings: Settings) -> str:
    names = ("roots", "processes", "queues", "units")
    sections = {name: msgspec.to_builtins(getattr(settings, name)) for name in names}
    return json.dumps({"store": {"url": settings.store.url}, **sections, "memory": _what_was_set(settings.memory)})


def _what_was_set(section: MemorySettings) -> dict[str, Any]:
    """Without what is as by default; among that are secrets, which nobody writes down."""
    usual = MemorySettings()
    values = {name: getattr(section, name) for name in section.__struct_fields__}
    return {name: value for name, value in values.items() if value != getattr(usual, name)}


@pytest.fixture(scope="session")
def redis_binary(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A real Redis, with TLS; installed where we may, else the test is skipped.

    Its server, its checkers and its sentinel are one program that looks at the name by which it was called, so
    Debian's redis-tools is enough, and no service comes with it.
    """
    program = _redis_program() or _installed_redis_program()
    if program is None:
        pytest.skip("there is no Redis here, and it could not be installed (Debian: redis-tools, as root)")
    named = tmp_path_factory.mktemp("redis") / "redis-server"
    named.symlink_to(Path(program).resolve())
    return str(named)


def _redis_program() -> str | None:
    return shutil.which("redis-server") or shutil.which("redis-check-rdb")


def _installed_redis_program() -> str | None:
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        return None
    # Workers that run in parallel wait for each other at the lock of the package manager.
    install = ["apt-get", "install", "-y", "-qq", "-o", "DPkg::Lock::Timeout=40", "redis-tools"]
    deadline = time.monotonic() + 90  # the test that asks first has three minutes in all
    for command in (install, ["apt-get", "update", "-qq"], install):
        try:
            subprocess.run(command, capture_output=True, timeout=max(deadline - time.monotonic(), 1), check=False)
        except subprocess.TimeoutExpired:
            return None
        if program := _redis_program():
            return program
    return None
