"""A thousand issues and twenty processes that all want every one of them."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections import Counter

from kizuna.app import Kizuna
from kizuna.coordination.issues import Issues
from kizuna.settings import Settings
from kizuna.testing import ServerProcess

ISSUES, PROCESSES = 1000, 20

# Loads everything once and becomes twenty processes. Each wants every issue, begins when the others do, completes half
# of what it got, and tells what that was.
PROGRAM = """
import asyncio, os, random, sys
from kizuna.app import Kizuna
from kizuna.coordination.issues import Issues
from kizuna.errors import IssueTaken
from kizuna.settings import RootsSettings, Settings, StoreSettings

async def work(url, root, process, number, starter):
    # All want everything at once: the last of them may have to wait for a while.
    store = StoreSettings(url=url, timeout_s=120)
    k = Kizuna(Settings(store=store, roots=RootsSettings(system=root, coordination=root)))
    await k.store.open()
    issues = Issues(k.store, process)
    os.read(starter, 1)
    wanted = random.sample(range(number), number)
    outcomes = await asyncio.gather(*(issues.checkout(issue) for issue in wanted), return_exceptions=True)
    assert all(isinstance(outcome, (tuple, IssueTaken)) for outcome in outcomes), outcomes
    got = [issue for issue, outcome in zip(wanted, outcomes) if isinstance(outcome, tuple)]
    await asyncio.gather(*(issues.complete(issue) for issue in got if issue % 2))
    os.write(1, (" ".join(map(str, [process, *got])) + chr(10)).encode())
    await k.aclose()

url, root, number, processes = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
starter, starting = os.pipe()
for child in range(processes):
    if os.fork() == 0:
        random.seed()
        asyncio.run(work(url, root, f"worker-{child}", number, starter))
        os._exit(0)
os.write(starting, b"." * processes)
sys.exit(sum(os.waitstatus_to_exitcode(os.wait()[1]) for _ in range(processes)))
"""


async def test_each_issue_is_checked_out_once_and_the_lists_are_true(
    settings: Settings, server: ServerProcess, root: str
) -> None:
    command = [sys.executable, "-c", PROGRAM, server.url, root, str(ISSUES), str(PROCESSES)]
    ended = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=150, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    lines = [line.split() for line in ended.stdout.splitlines()]
    got = {process: [int(issue) for issue in issues] for process, *issues in lines}

    assert len(got) == PROCESSES
    assert Counter(issue for mine in got.values() for issue in mine) == Counter(range(ISSUES))
    k = Kizuna(settings)
    await k.store.open()
    issues = Issues(k.store, "onlooker")
    assert await issues.processing() == [str(issue) for issue in range(0, ISSUES, 2)]
    assert await issues.completed_today() == [str(issue) for issue in range(1, ISSUES, 2)]
    assert [fault async for fault in issues.verify()] == []
    for process, mine in got.items():
        assert await issues.give_back(process) == sum(issue % 2 == 0 for issue in mine)
    assert await issues.processing() == []
    await k.aclose()
