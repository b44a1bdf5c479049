"""`kizuna keys`."""

from __future__ import annotations

import click

from kizuna.cli.keys.acl_lines import acl, check
from kizuna.cli.keys.backing_up import backup, restore
from kizuna.cli.keys.cleaning import clean
from kizuna.cli.keys.counting import tree
from kizuna.cli.keys.declared import describe, lint
from kizuna.cli.keys.listing import ls
from kizuna.cli.keys.measuring import stat


@click.group()
def keys() -> None:
    """List, measure, back up and clean the keys on the server.

    PATTERN is meant below the roots, in all shards: `lock:*` is `poppo:lock:*`, a plain word such as `queue`, or
    `unit_a/req` for a unit's requests, is that key and all below it, and none at all is everything. With --anywhere it
    is taken as it stands. The server is asked in small steps, with pauses while it is slow.

    \b
    $ kizuna keys tree
    $ kizuna keys ls queue
    $ kizuna keys backup nightly.kizuna
    """


for each in (ls, tree, stat, lint, describe, backup, restore, clean, acl, check):
    keys.add_command(each)
