"""Where the extra is not installed, everything else works, and who asks for matchmaking is told what to install."""

from __future__ import annotations

import subprocess
import sys

from kizuna.testing import ServerProcess

PROGRAM = """
import asyncio, sys
sys.modules["google.protobuf"] = None
import kizuna
from kizuna.catalogue import family_of
from kizuna.errors import NotInstalled
from kizuna.match.giving_back import give_back

async def main(url):
    async with kizuna.connect(url) as k:
        await give_back(k.store, "somebody")
        try:
            k.match
        except NotInstalled as error:
            print(family_of("assign:x").name, error)

asyncio.run(main(sys.argv[1]))
"""


def test_who_has_no_protocol_buffers_is_told_what_brings_them(server: ServerProcess) -> None:
    command = [sys.executable, "-c", PROGRAM, server.url]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)

    assert ran.stderr == ""
    assert ran.stdout == "ASSIGNMENT there is no google.protobuf here; pip install 'kizuna[match]' brings it\n"
