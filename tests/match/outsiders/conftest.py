from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.match.outsiders.specification import RawFrontend

from kizuna.settings import Settings
from kizuna.testing import ServerProcess
from kizuna.testing.resp import Conversation

_BUILT_WITHIN_S = 40
"""The test that asks first has a minute in all."""


@pytest.fixture
def prefix(settings: Settings) -> str:
    return settings.roots.match


@pytest.fixture
def outside(server: ServerProcess) -> Iterator[Conversation]:
    with server.connect() as conversation:
        yield conversation


@pytest.fixture
def frontend(outside: Conversation, prefix: str) -> RawFrontend:
    return RawFrontend(outside, prefix)


@pytest.fixture(scope="session")
def go_peer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program of `go_peer/`; the test is skipped where it cannot be built."""
    if shutil.which("go") is None:
        pytest.skip("there is no go on the PATH")
    folder = tmp_path_factory.mktemp("go") / "go_peer"
    shutil.copytree(Path(__file__).with_name("go_peer"), folder)
    line = ["go", "build", "-o", "program", "."]
    try:
        built = subprocess.run(
            line, cwd=folder, env=_environment(), capture_output=True, text=True, timeout=_BUILT_WITHIN_S, check=False
        )
    except subprocess.TimeoutExpired:
        pytest.skip(f"go took longer than {_BUILT_WITHIN_S} s; what it has compiled by now, it need not compile again")
    if built.returncode:
        pytest.skip(f"go cannot build it here: {built.stderr.strip().splitlines()[-1:]}")
    return folder / "program"


def _environment() -> dict[str, str]:
    # Neither another toolchain than the one that is here, nor what somebody else's folder of sources says.
    return {**os.environ, "GOTOOLCHAIN": "local", "GOFLAGS": "-mod=readonly -buildvcs=false", "GOWORK": "off"}
