"""A peer that vanished without a word is found by the kernel, too: while idle, and while data is under way."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Callable

import pytest
import uvloop

from kizuna.app import connect
from kizuna.settings import Settings, StoreSettings
from kizuna.testing import ServerProcess

MakeLoop = Callable[[], asyncio.AbstractEventLoop]


@pytest.mark.skipif(sys.platform != "linux", reason="the options have other names elsewhere")
@pytest.mark.parametrize("make_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_the_kernel_gives_a_dead_peer_up_within_eleven_seconds(make_loop: MakeLoop, server: ServerProcess) -> None:
    async def options() -> dict[str, int]:
        async with connect(Settings(store=StoreSettings(url=server.url, timeout_s=7.5))) as k:
            (link,) = k.store.topology.primaries()
            assert link.wire is not None
            ours = link.wire._transport.get_extra_info("socket")
            names = ("TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT", "TCP_USER_TIMEOUT", "TCP_NODELAY")
            found = {name: int(ours.getsockopt(socket.IPPROTO_TCP, getattr(socket, name))) for name in names}
            return found | {"SO_KEEPALIVE": int(ours.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE))}

    with asyncio.Runner(loop_factory=make_loop) as runner:
        found = runner.run(options())

    assert found["SO_KEEPALIVE"] == 1
    assert found["TCP_KEEPIDLE"] + found["TCP_KEEPINTVL"] * found["TCP_KEEPCNT"] <= 11
    assert found["TCP_USER_TIMEOUT"] == 7500
    assert found["TCP_NODELAY"] == 1
