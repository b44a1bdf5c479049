"""`kizuna units call`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from kizuna.cli.connecting import looking
from kizuna.cli.exit_codes import FAILURE
from kizuna.cli.options import seconds_option
from kizuna.cli.output import json_option, say, show
from kizuna.cli.readable import as_text, readable
from kizuna.cli.units.values import given_value, name_for_this_process, put_value

if TYPE_CHECKING:
    from kizuna.app import Kizuna


@click.command()
@click.argument("name")
@click.argument("data", required=False)
@click.option("--as", "caller", metavar="UNIT", help="Who asks.  [default: a unit of its own]")
@seconds_option("--timeout", "Wait so long for the reply.  [default: as long as the request lives]")
@seconds_option("--ttl", "How long the request lives.  [default: units.request_s]")
@click.option(
    "--id", "request_id", metavar="ID", help="Its id; the same unit gets the same reply to the same id for a while."
)
@click.option("--many", type=click.IntRange(1), metavar="N", help="Ask so often, and print how long it took instead.")
@click.option(
    "--parallel",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    metavar="N",
    help="With --many: so many at once.",
)
@json_option
@click.pass_context
def call(
    ctx: click.Context,
    name: str,
    data: str | None,
    caller: str | None,
    timeout_s: float | None,
    ttl_s: float | None,
    request_id: str | None,
    many: int | None,
    parallel: int,
    as_json: bool,
) -> None:
    """Ask a unit, and print its reply as it is.

    DATA is what is asked; `-`, or none where the input is no terminal, reads it from there. If the unit answers with an
    error, that is printed to stderr, and the exit code is 1; if no answer comes in time, 75, and the message says
    whether somebody had taken the request.

    \b
    $ kizuna units call detector '{"image": "cat.png"}'
    $ kizuna units call thumbnail < cat.png > small.png
    $ kizuna units call echo hello --many 10000 --parallel 64
    """
    from kizuna.errors import RequestFailed

    if many is not None and request_id is not None:
        raise click.UsageError("--many asks anew each time, and --id always the same; keep one")
    raw = given_value(data)

    async def ask(k: Kizuna) -> tuple[bytes, float]:
        unit = k.unit(caller or name_for_this_process())
        began = time.perf_counter()
        reply: bytes = await unit.request(name, raw, id=request_id, timeout_s=timeout_s, ttl_s=ttl_s)
        return reply, time.perf_counter() - began

    async def ask_often(k: Kizuna) -> dict[str, object]:
        from kizuna.cli.units.load import asked_often

        unit = k.unit(caller or name_for_this_process())
        times = many or 0
        return await asked_often(
            lambda: unit.request(name, raw, timeout_s=timeout_s, ttl_s=ttl_s), times, parallel=parallel
        )

    if many is not None:
        facts = looking(ctx.obj, ask_often)
        show(facts, as_json=as_json)
        ctx.exit(0 if facts["replies"] == facts["calls"] else FAILURE)
    try:
        reply, took_s = looking(ctx.obj, ask)
    except RequestFailed as error:
        if not error.body.strip():
            raise
        say(f"Error: {' '.join(as_text(error.body).split())}")
        ctx.exit(FAILURE)
    if as_json:
        show({"unit": name, "reply": readable(reply), "took_ms": round(took_s * 1000, 2)}, as_json=True)
    else:
        put_value(reply)
