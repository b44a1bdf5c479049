"""`kizuna memory` on the server and the root of the test."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kizuna.cli import command
from kizuna.testing.commands import Runner


@pytest.fixture
def with_settings(server_url: str, root: str) -> Callable[..., Runner]:
    """With these settings of memory besides."""

    def with_settings(*, url: str = server_url, timeout_s: float = 10, **memory: object) -> Runner:
        roots = [f"roots.{name}={root}" for name in ("system", "coordination", "units", "memory")]
        texts = [*roots, f"store.timeout_s={timeout_s}", *(f"memory.{name}={value}" for name, value in memory.items())]
        return Runner(command, "--url", url, *(word for text in texts for word in ("--set", text)), "memory")

    return with_settings


@pytest.fixture
def kizuna(with_settings: Callable[..., Runner]) -> Runner:
    return with_settings()
