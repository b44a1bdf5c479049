"""`kizuna queues`."""

from __future__ import annotations

import click

from kizuna.cli.queues.by_hand import ack, fail, pop, renew
from kizuna.cli.queues.dead import dead
from kizuna.cli.queues.groups import ls, pause, resume, watch
from kizuna.cli.queues.tasks import cancel, push, result, status
from kizuna.cli.queues.work import work


@click.group()
def queues() -> None:
    """Push, run and look after tasks.

    A task is pushed to a group, and run by `kizuna queues work`, by a worker in Python, or by hand with `pop` and
    `ack`. Payloads and results are JSON, unless programs have agreed on something else.

    \b
    $ kizuna queues push '{"image": "cat.png"}' --group images --wait 60
    $ kizuna queues work --group images --handler shop.images:resize
    $ kizuna queues ls
    """


for each in (ls, watch, push, status, result, cancel, work, pop, ack, fail, renew, dead, pause, resume):
    queues.add_command(each)
