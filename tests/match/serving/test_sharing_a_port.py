"""Frontends in several processes behind one port."""

from __future__ import annotations

import asyncio
import sys
from base64 import b32hexdecode
from typing import Any

import grpc
from tests.match.serving.channels import OWN_CONNECTION, frontend

from kizuna.match.openmatch.frontend_pb2 import CreateTicketRequest, GetTicketRequest
from kizuna.match.openmatch.messages_pb2 import Ticket
from kizuna.match.serving.copies import Copies, shared_port
from kizuna.service import running
from kizuna.settings import Settings
from kizuna.store.client import Store
from kizuna.testing.waiting import eventually

FRONTEND = """
import asyncio, os, sys
from kizuna.app import connect
from kizuna.match.serving.frontend_calls import FrontendCalls
from kizuna.match.serving.grpc_server import GrpcServer
from kizuna.service import run_until_signalled
from kizuna.settings import load_settings
from kizuna.store.health.watch import ServerWatch

async def main():
    url, prefix, port = sys.argv[1:]
    settings = load_settings({"store.url": url, "roots.match": prefix})
    async with connect(settings) as k:
        ready, rpcs = ServerWatch(k.store).problems, FrontendCalls(k.match).rpcs()
        server = GrpcServer(rpcs, settings.match, port=int(port), ready=ready, reuse_port=True)
        await run_until_signalled(server, on_started=lambda: print(os.getpid(), flush=True))

asyncio.run(main())
"""


def maker_of(id_: str) -> int:
    """The process that made an id: its last two bytes stand in it."""
    return int.from_bytes(b32hexdecode(id_.upper() + "====")[7:9], "big")


def new_channel(port: int) -> Any:
    return grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=OWN_CONNECTION)


async def test_each_of_them_takes_calls_and_knows_the_tickets_of_the_others(settings: Settings, store: Store) -> None:
    with shared_port("127.0.0.1", 0, "match.frontend_port") as port:
        arguments = [sys.executable, "-c", FRONTEND, settings.store.url, settings.roots.match, str(port)]
        copies = Copies(arguments, 2)
        made: dict[int, Any] = {}
        async with running(copies, stop_timeout_s=30):
            pids = {pid & 0xFFFF for pid in copies.pids}

            async def both_made_one() -> bool:
                # The system deals out connections: each is with one of them, no matter which.
                async with new_channel(port) as channel:
                    ticket = await frontend(channel).CreateTicket(CreateTicketRequest(ticket=Ticket()))
                made[maker_of(ticket.id)] = ticket
                return made.keys() == pids

            await eventually(both_made_one, within_s=40)
            async with new_channel(port) as channel:
                calls = [frontend(channel).GetTicket(GetTicketRequest(ticket_id=one.id)) for one in made.values()]
                assert await asyncio.gather(*calls) == list(made.values())
