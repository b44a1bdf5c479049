"""What the commands that serve games and directors have in common."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from kizuna.cli.match.matching import require
from kizuna.cli.output import say, show
from kizuna.cli.up import make_probes
from kizuna.errors import CannotListen

if TYPE_CHECKING:
    from kizuna.app import Kizuna
    from kizuna.match.gateway import Gateway
    from kizuna.match.serving.grpc_server import GrpcServer
    from kizuna.match.serving.rpcs import Rpc
    from kizuna.metrics import Measure, Source
    from kizuna.service import Service
    from kizuna.settings import Settings


def require_servers(*, with_http: bool) -> None:
    require("google.protobuf", "grpc", "grpc_health.v1", *(["uvicorn"] if with_http else []))


def with_match(settings: Settings, **given: object) -> Settings:
    """With these settings of [match]; None leaves one as it is."""
    from msgspec.structs import replace

    named = {name: value for name, value in given.items() if value is not None}
    return replace(settings, match=replace(settings.match, **named)) if named else settings


class Served:
    """One service at its two ports: gRPC, and HTTP unless that is not wanted. Clients of minimatch know of one port
    only, so who speaks HTTP to that of gRPC is served there as well."""

    def __init__(self, k: Kizuna, rpcs: Sequence[Rpc], port: str, *, with_http: bool, reuse_port: bool = False) -> None:
        """`port` is the name of the setting: `frontend_port`, with `frontend_http_port` beside it."""
        from kizuna.match.serving.grpc_server import GrpcServer
        from kizuna.store.health.watch import ServerWatch

        settings, ready = k.settings.match, ServerWatch(k.store).problems
        self.http: Gateway | None = None
        if with_http:
            from kizuna.match.gateway import Gateway

            http_port = port.replace("_port", "_http_port")
            self.http = Gateway(
                rpcs,
                settings,
                port=getattr(settings, http_port),
                port_setting=f"match.{http_port}",
                ready=ready,
                reuse_port=reuse_port,
            )
        self.grpc: GrpcServer = GrpcServer(
            rpcs,
            settings,
            port=getattr(settings, port),
            port_setting=f"match.{port}",
            ready=ready,
            reuse_port=reuse_port,
            http1=self.http.protocol if self.http else None,
            web=self.http.app if self.http else None,
        )

    @property
    def services(self) -> list[Service]:
        # In this order: what gRPC's port hands over has to be taken for as long as that is open.
        return [*([self.http] if self.http else []), self.grpc]

    @property
    def sources(self) -> list[Source]:
        return [self.grpc.measures, *([self.http.measures] if self.http else [])]

    def places(self, what: str = "") -> dict[str, Any]:
        """Where it listens."""
        http = {f"{what}http": self.http.url} if self.http else {}
        return {f"{what}grpc": self.grpc.address, **http}


def together(*sources: Source) -> Source:
    """As one: measures of one name have to stand together."""

    def measures() -> Iterator[Measure]:
        yield from sorted((measure for source in sources for measure in source()), key=lambda measure: measure.name)

    return measures


async def serve_until_signalled(
    k: Kizuna,
    services: Sequence[Service],
    places: Callable[[], dict[str, Any]],
    sources: Sequence[Source],
    *,
    probes_ports: int,
    as_json: bool,
    is_alone: bool = True,
) -> None:
    """`places` tells, once all has started, where. Probes are at the first of so many ports that is free; 0: none. Who
    is not alone says nothing to people: whoever started it does."""
    from kizuna.service import run_until_signalled

    # Behind the servers, so that nobody is told to be ready who does not serve yet, or any more.
    probes = [FirstFreeProbes(k, together(*sources), probes_ports)] if probes_ports else []

    def announce() -> None:
        show(places() | ({"probes": probes[0].url} if probes else {}) | {"pid": os.getpid()}, as_json=as_json)
        if is_alone:
            say("Ctrl-C stops it.")

    signal = await run_until_signalled(*services, *probes, on_started=announce)
    if is_alone:
        say(f"Stopped by {signal.name}.")


class FirstFreeProbes:
    """A service: probes at probes.port, or, where other copies of us have that, at one of the next."""

    def __init__(self, k: Kizuna, source: Source, ports: int) -> None:
        first = k.settings.probes.port
        self._candidates = [
            make_probes(k, source, port=first + number if first else 0) for number in range(min(ports, 65_536 - first))
        ]
        self._probes = self._candidates[0]

    @property
    def url(self) -> str:
        """Where they are, once they are."""
        return self._probes.url

    async def run(self, started: asyncio.Event) -> None:
        for probes in self._candidates:
            self._probes = probes
            try:
                await probes.run(started)
            except CannotListen:
                if probes is self._candidates[-1]:
                    raise
