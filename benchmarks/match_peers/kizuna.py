"""kizuna, as users have it: everything is on that is on by default."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from benchmarks.peer_roles import URL
from kizuna import connect
from kizuna.match import Backend, Group, Match, Pool, Profile, Waiting
from kizuna.match.matchmaking import Matchmaking
from kizuna.match.serving.frontend_calls import FrontendCalls
from kizuna.match.serving.grpc_server import GrpcServer
from kizuna.service import running
from kizuna.settings import MatchSettings


@asynccontextmanager
async def player() -> AsyncIterator[_Player]:
    async with connect(URL) as k:
        yield _Player(k.match)


@asynccontextmanager
async def frontend() -> AsyncIterator[str]:
    async with connect(URL) as k, serving(k.match, k.settings.match) as target:
        yield target


@asynccontextmanager
async def serving(match: Matchmaking, settings: MatchSettings) -> AsyncIterator[str]:
    server = GrpcServer(FrontendCalls(match).rpcs(), settings, port=0, ready=_ready)
    async with running(server):
        yield server.address


@asynccontextmanager
async def backend() -> AsyncIterator[_Backend]:
    async with connect(URL) as k, AsyncExitStack() as stack:
        found = k.match.backend(assign)
        found.add(Profile("1v1", [Pool("everyone")]), pairs)
        yield _Backend(found, stack)


class _Player:
    def __init__(self, match: Matchmaking) -> None:
        self._match = match

    async def create(self) -> str:
        ticket = await self._match.create_ticket(
            tags=["eu-west"], doubles={"skill": 1500.0}, strings={"mode": "ranked"}
        )
        return ticket.id

    async def assignment(self, ticket: str, within_s: float) -> object:
        return await self._match.assignment(ticket, timeout_s=within_s)


class _Backend:
    def __init__(self, backend: Backend, stack: AsyncExitStack) -> None:
        self._backend = backend
        self._stack = stack

    async def start(self) -> None:
        await self._stack.enter_async_context(running(self._backend))


async def _ready() -> list[str]:
    return []


def pairs(waiting: Waiting) -> Iterator[Match]:
    """Oldest first, in pairs."""
    tickets = waiting.pools["everyone"]
    for pair in zip(tickets[::2], tickets[1::2], strict=False):
        yield Match(pair)


def assign(matches: Sequence[Match]) -> list[Group]:
    return [match.assigned(f"game-{number}.example.com:7777") for number, match in enumerate(matches)]
