"""`kizuna units`."""

from __future__ import annotations

import click

from kizuna.cli.units.acl import acl
from kizuna.cli.units.call import call
from kizuna.cli.units.keep import keep
from kizuna.cli.units.ls import ls
from kizuna.cli.units.serve import serve
from kizuna.cli.units.watch import watch


@click.group()
def units() -> None:
    """Call, serve and watch units, and the state that they keep.

    A unit is a program that others know by its name: whoever knows that name and the server can call it. All of it is
    in keys, `muf/<unit>/<req|res|err|keep>/<id>`, so that `redis-cli` can join as well.

    \b
    $ kizuna units ls
    $ kizuna units watch
    $ kizuna units call detector '{"image": "cat.png"}'
    $ kizuna units serve thumbnail --exec "convert - -resize 100x100 png:-"
    """


for each in (ls, watch, call, serve, keep, acl):
    units.add_command(each)
