"""Starting a keeper: at most one process at a time, and the keeper outlives it."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from kizuna.errors import ServerNotStarted
from kizuna.store.embedded.folder import last_lines, open_lock, open_log, try_lock
from kizuna.store.embedded.setup import configuration, server_binary

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kizuna.settings import EmbeddedSettings
    from kizuna.store.embedded.folder import ServerFolder


def start_keeper(folder: ServerFolder, settings: EmbeddedSettings) -> str:
    """The id of this start, for the keeper's record; empty if there is a keeper, or another process is at it.

    Blocks for the time that Python needs to start. Raises ServerNotStarted.
    """
    lock = open_lock(folder.keeper_lock)
    try:
        if not try_lock(lock, fcntl.LOCK_EX):
            return ""
        start_id = uuid.uuid4().hex
        plan = msgspec.json.encode(_plan(folder, settings)).decode()
        _run_keeper(folder, [str(folder.path), start_id, plan, str(lock)], lock)
        return start_id
    finally:
        # Closed and not unlocked: it is one lock, and the keeper has inherited it.
        os.close(lock)


def _plan(folder: ServerFolder, settings: EmbeddedSettings) -> dict[str, object]:
    return {
        "binary": str(server_binary(settings.binary)),
        "configuration": configuration(settings, folder.data),
        "port": settings.port,
        "profile": settings.profile,
        "linger_s": settings.linger_s,
        "start_timeout_s": settings.start_timeout_s,
    }


def _run_keeper(folder: ServerFolder, arguments: list[str], lock: int) -> None:
    with open_log(folder.keeper_log) as log:
        began_at = log.seek(0, os.SEEK_END)
        # Returns as soon as the keeper is a process of its own.
        outcome = subprocess.run(
            [sys.executable, "-P", "-m", "kizuna.store.embedded.keeper", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=[lock],
            cwd="/",
            env=_keeper_environment(os.environ),
            start_new_session=True,
            check=False,
        )
    if outcome.returncode:
        raise ServerNotStarted(
            f"its keeper ended with status {outcome.returncode}, saying:"
            f" {last_lines(folder.keeper_log, since=began_at)}",
            f"look at {folder.keeper_log}",
        )


def _keeper_environment(ours: Mapping[str, str]) -> dict[str, str]:
    """Ours without our settings, since passwords are no business of the keeper; it finds this very package."""
    kept = {name: value for name, value in ours.items() if not name.startswith("KIZUNA_")}
    package_root = str(Path(__file__).parents[3])
    kept["PYTHONPATH"] = os.pathsep.join(filter(None, [ours.get("PYTHONPATH"), package_root]))
    return kept
