"""A sensor, a forecaster and a display, three units that know each other by name.

$ python examples/weather.py

In real life each is a program of its own, on any machine that reaches the server; here they share one process.
"""

from __future__ import annotations

import asyncio

import kizuna
from kizuna.codecs import JSON


async def forecast(readings: list[float]) -> dict[str, float]:
    if not readings:
        raise kizuna.Failed("without readings there is nothing to say")
    return {"tomorrow": readings[-1] + (readings[-1] - readings[0]) / len(readings)}


async def main() -> None:
    async with kizuna.connect() as k:
        sensor, display = k.unit("sensor", codec=JSON), k.unit("display", codec=JSON)

        async with k.unit("forecaster", codec=JSON).serving(forecast):
            answer = await display.request("forecaster", [20.0, 21.0, 22.0], timeout_s=10)
            print(f"tomorrow {answer['tomorrow']:.1f} degrees")

            try:
                await display.request("forecaster", [])
            except kizuna.errors.RequestFailed as failure:
                print("no forecast:", failure.body.decode())

        try:
            await display.request("forecaster", [20.0], timeout_s=0.2)
        except kizuna.errors.RequestTimeout as timeout:
            print("gone home" if timeout.claimed is False else "busy")

        async with display.keep_of("sensor").watch("temp", changes_only=True) as changes:
            await sensor.keep.set("temp", 23.5, ttl_s=2)
            for _ in range(2):
                change = await anext(changes)
                print(change.id, change.kind, change.value)


if __name__ == "__main__":
    asyncio.run(main())
