from __future__ import annotations

import asyncio
import importlib.util
import signal
import sys

import pytest

from kizuna.errors import KizunaError
from kizuna.loop import run


async def module_of_the_loop() -> str:
    return type(asyncio.get_running_loop()).__module__.split(".")[0]


@pytest.mark.skipif(importlib.util.find_spec("uvloop") is None, reason="uvloop is not installed")
def test_uvloop_is_used_where_it_is_installed() -> None:
    assert run(module_of_the_loop()) == "uvloop"


def test_without_uvloop_it_is_the_loop_of_asyncio(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", None)

    assert run(module_of_the_loop()) == "asyncio"


def test_what_the_coroutine_raises_goes_up() -> None:
    async def fail() -> None:
        raise KizunaError("no")

    with pytest.raises(KizunaError, match="no"):
        run(fail())


def test_ctrl_c_lets_the_coroutine_clean_up() -> None:
    cleaned_up = []

    async def interrupted() -> None:
        try:
            signal.raise_signal(signal.SIGINT)
            await asyncio.Event().wait()
        finally:
            cleaned_up.append(True)

    with pytest.raises(KeyboardInterrupt):
        run(interrupted())
    assert cleaned_up == [True]
