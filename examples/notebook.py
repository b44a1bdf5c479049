"""An agent's scratch pad that two processes share: a planner, and a researcher that it starts as a process of its own.

$ python examples/notebook.py

They know nothing of each other but the server, which may be the embedded one, and the name of the context.
"""

from __future__ import annotations

import asyncio
import sys

import kizuna

TRIP = "trip-to-kyoto"
BUDGET = f"{TRIP}:budget"
SUMMARY = f"{TRIP}:summary"


async def plan(k: kizuna.Kizuna) -> None:
    memory = k.memory
    await memory.contexts.create("Trip to Kyoto", "trip", id=TRIP)
    await memory.put(BUDGET, "budget", {"left": 1000}, context=TRIP, priority=9)

    # From here on, so that nothing that the researcher notes is missed, however late we come to look.
    beginning = await memory.now_cursor()
    researcher = await asyncio.create_subprocess_exec(sys.executable, __file__, "research")
    await spend(k, 100)
    async for event in memory.follow(beginning):
        note = await memory.get(event.id) if event.kind == "item:created" else None
        if note is not None and note.type == "fact":
            print("learned:", note.content)
        if note is not None and note.type == "done":
            break
    await researcher.wait()

    # Both have spent, at the same time perhaps, and nothing was lost.
    budget = await memory.get(BUDGET)
    print("left:", budget.content["left"] if budget else "nothing")

    await memory.put(SUMMARY, "summary", "Two nights, by train.", context=TRIP, depends_on=[BUDGET])
    await spend(k, 50)
    print("summary:", "still good" if await memory.get(SUMMARY) else "gone, since what it was made of has changed")

    await memory.contexts.delete(TRIP)
    print("notes after the trip:", await memory.count(context=TRIP))


async def research(k: kizuna.Kizuna) -> None:
    for fact, cost in [("the train takes 2 h 15 min", 280), ("the inn has a garden", 360)]:
        await k.memory.create("fact", fact, context=TRIP, metadata={"cost": cost})
        await spend(k, cost)
    await k.memory.create("done", None, context=TRIP)


async def spend(k: kizuna.Kizuna, cost: int) -> None:
    """Read, change and write, and again if somebody else wrote in between."""
    await k.memory.change(BUDGET, lambda budget: {"left": budget["left"] - cost})


async def main(role: str = "plan") -> None:
    async with kizuna.connect() as k:
        await (research(k) if role == "research" else plan(k))


if __name__ == "__main__":
    kizuna.run(main(*sys.argv[1:]))
