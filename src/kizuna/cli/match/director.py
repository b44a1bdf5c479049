"""`kizuna match director`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kizuna.cli.match.serving import Served, require_servers, serve_until_signalled, with_match
from kizuna.cli.options import PORT, probes_option
from kizuna.cli.output import json_option

if TYPE_CHECKING:
    from kizuna.cli import Invocation
    from kizuna.settings import Settings


@click.command()
@click.option("--host", help="Where to listen: short for --set match.host=HOST.")
@click.option(
    "--backend-port", type=PORT, metavar="PORT", help="gRPC of BackendService: match.backend_port; 0 picks a free one."
)
@click.option("--backend-http-port", type=PORT, metavar="PORT", help="HTTP of it: match.backend_http_port.")
@click.option("--query-port", type=PORT, metavar="PORT", help="gRPC of QueryService: match.query_port.")
@click.option("--query-http-port", type=PORT, metavar="PORT", help="HTTP of it: match.query_http_port.")
@click.option("--no-http", is_flag=True, help="gRPC alone.")
@probes_option
@json_option
@click.pass_obj
def director(
    invocation: Invocation,
    /,
    no_http: bool,
    with_probes: bool,
    as_json: bool,
    **addresses: object,
) -> None:
    """Serve directors and match functions, as Open Match does.

    BackendService, of which directors fetch matches, and QueryService, of which match functions fetch tickets, each by
    gRPC and by HTTP, until Ctrl-C or SIGTERM. Match functions are called where the director says; the one that decides
    between matches is that of match.evaluator, or best score first.

    \b
    $ kizuna match director
    $ kizuna match director --host 0.0.0.0 --probes
    $ kizuna --set match.evaluator=evaluator:50508 match director --no-http
    """
    from kizuna.cli.logs import show_logs
    from kizuna.loop import run

    require_servers(with_http=not no_http)
    settings = with_match(invocation.settings, **addresses)
    show_logs()
    run(serve(settings, with_http=not no_http, with_probes=with_probes, as_json=as_json))


async def serve(settings: Settings, *, with_http: bool, with_probes: bool, as_json: bool) -> None:
    from kizuna.app import connect
    from kizuna.match.director.director import Director

    async with connect(settings) as k:
        director = Director(k.match, settings.match)
        backend = Served(k, director.backend_rpcs(), "backend_port", with_http=with_http)
        query = Served(k, director.query_rpcs(), "query_port", with_http=with_http)
        await serve_until_signalled(
            k,
            [director, *backend.services, *query.services],
            lambda: backend.places("backend_") | query.places("query_"),
            [k.match.measures, director.measures, *backend.sources, *query.sources],
            probes_ports=int(with_probes),
            as_json=as_json,
        )
