"""A producer and a worker. They need nothing but the same server, which may be the embedded one.

python examples/thumbnails.py                  both of them, in this process
python examples/thumbnails.py work             a worker, until Ctrl-C; start as many as you like
python examples/thumbnails.py push cat dog     a producer, which waits for the results
"""

from __future__ import annotations

import sys
import time

import kizuna
from kizuna.coordination.queues.tasks import Delivery
from kizuna.errors import TaskFailed


def make_worker(k: kizuna.Kizuna) -> kizuna.Worker:
    worker = kizuna.Worker(k, "images", concurrency=4, timeout_s=60)

    @worker.handler("thumbnail")
    async def thumbnail(image: str, delivery: Delivery) -> str:
        if "." in image:
            raise kizuna.GiveUp(f"{image} is the name of a file, and not of an animal")
        await delivery.progress(0.5, "painting")
        return f"{image}-100x100.png"

    @worker.handler("print")
    def send_to_printer(image: str) -> str:  # a plain function: it runs in a thread, and may block there
        time.sleep(0.01)
        return f"{image} is on paper"

    return worker


async def push(k: kizuna.Kizuna, images: list[str]) -> None:
    queue = k.queue("images")
    tasks = [await queue.push(image, name="thumbnail", priority="high") for image in images]
    tasks += [await queue.push(images[0], name="print", id=f"print-{images[0]}")]
    for task in tasks:
        try:
            print(await task.result(timeout_s=60))
        except TaskFailed as failure:
            print(failure.reason)


async def main(role: str = "both", *images: str) -> None:
    async with kizuna.connect() as k:
        if role == "work":
            await kizuna.run_until_signalled(make_worker(k))
        elif role == "push":
            await push(k, list(images) or ["cat"])
        else:
            async with kizuna.running(make_worker(k)):
                await push(k, ["cat", "dog", "bird.png"])


if __name__ == "__main__":
    kizuna.run(main(*sys.argv[1:]))
