"""`kizuna memory serve`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from kizuna.cli.options import PORT, probes_option
from kizuna.cli.output import json_option, say, show

if TYPE_CHECKING:
    from kizuna.cli import Invocation
    from kizuna.settings import Settings


@click.command()
@click.option("--host", help="Where to listen: short for --set memory.rest_host=HOST.")
@click.option("--port", type=PORT, help="The same for memory.rest_port; 0 picks a free one.")
@probes_option
@json_option
@click.pass_obj
def serve(invocation: Invocation, host: str | None, port: int | None, with_probes: bool, as_json: bool) -> None:
    """Serve a REST API, until Ctrl-C or SIGTERM; /openapi.json describes it.

    It listens on 127.0.0.1:3712 unless set otherwise, and lets in everybody on this machine but web pages. To listen
    to others as well it needs a token, in memory.rest_token_file, that callers send as `Authorization: Bearer …`.

    \b
    $ kizuna memory serve
    $ kizuna --set memory.rest_token_file=token memory serve --host 0.0.0.0
    $ curl -s localhost:3712/items -H 'Content-Type: application/json' -d '{"type": "fact", "content": "Hi"}'
    """
    from kizuna.cli.logs import show_logs
    from kizuna.loop import run

    settings = with_address(invocation.settings, host, port)
    show_logs()
    run(serve_until_signalled(settings, with_probes=with_probes, as_json=as_json))


def with_address(settings: Settings, host: str | None, port: int | None) -> Settings:
    from msgspec.structs import replace

    given = {name: value for name, value in (("rest_host", host), ("rest_port", port)) if value is not None}
    return replace(settings, memory=replace(settings.memory, **given))


async def serve_until_signalled(settings: Settings, *, with_probes: bool, as_json: bool) -> None:
    from kizuna.app import connect
    from kizuna.cli.up import make_probes
    from kizuna.service import run_until_signalled

    try:
        from kizuna.memory.rest import RestApi
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("kizuna"):
            raise
        raise click.ClickException(f"there is no {error.name} here; pip install 'kizuna[rest]' brings it") from error

    async with connect(settings) as k:
        api = RestApi(k)
        probes = [make_probes(k, k.memory.measures)] if with_probes else []

        def announce() -> None:
            facts = {"api": api.url, "needs_token": bool(settings.memory.rest_token or settings.memory.rest_token_file)}
            show(facts | ({"probes": probes[0].url} if probes else {}) | {"pid": os.getpid()}, as_json=as_json)
            say("Ctrl-C stops it.")

        signal = await run_until_signalled(api, *probes, on_started=announce)
        say(f"Stopped by {signal.name}.")
