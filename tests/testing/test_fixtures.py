"""The fixtures as a user meets them: in a project of their own, run by pytest in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from kizuna.settings import Settings
    from kizuna.store.client import Store
    from kizuna.testing import ChaosProxy, ServerProcess
    from kizuna.testing.fixtures import MakeProxy

CONFTEST = 'pytest_plugins = ["kizuna.testing.fixtures"]'


def run_project(folder: Path, tests: str, *options: str) -> subprocess.CompletedProcess[str]:
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_project.py").write_text(tests)
    (folder / "pytest.ini").write_text("[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\n")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)


def test_a_users_project_gets_a_store_on_a_real_server(tmp_path: Path) -> None:
    result = run_project(
        tmp_path,
        """
async def test_the_store_answers(store):
    assert await store.call("PING") == b"PONG"

async def test_scratch_keys_are_the_tests_own(store, scratch):
    await store.call("SET", scratch + "a", "1")

def test_scratch_keys_are_gone_afterwards(server):
    assert server.call("DBSIZE") == 0
""",
    )

    assert "3 passed" in result.stdout, result.stdout + result.stderr


def test_a_key_that_is_left_undeclared_fails_the_test_that_left_it(tmp_path: Path) -> None:
    result = run_project(
        tmp_path,
        """
async def test_leaves_something(store, root):
    await store.call("SET", root + ":undeclared", "1")

async def test_that_does_not(store):
    await store.call("PING")
""",
    )

    assert "2 passed, 1 error" in result.stdout, result.stdout + result.stderr
    assert ":undeclared is in no keys.py" in result.stdout


def test_importing_the_helpers_needs_no_pytest() -> None:
    program = (
        "import sys, kizuna.testing; print([m for m in ('pytest', 'pytest_asyncio', 'redis') if m in sys.modules])"
    )
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert loaded.stdout.strip() == "[]"


async def test_the_store_works_through_a_proxy(
    proxy: MakeProxy, fresh_server: ServerProcess, settings: Settings, store: Store
) -> None:
    plain: ChaosProxy = await proxy()
    other: ChaosProxy = await proxy(fresh_server)

    assert plain.target != other.target
    assert await store.call("PING") == b"PONG"
    assert settings.store.url.endswith(f":{plain.target[1]}/0")


def test_every_test_has_a_root_of_its_own(root: str, request: pytest.FixtureRequest) -> None:
    assert root.startswith("t-")
    assert request.getfixturevalue("root") == root
