"""Asks the sentinels which server is the primary now."""

from __future__ import annotations

import asyncio
import itertools

from kizuna.errors import SignInRefused, StoreError, TlsRefused, Unreachable
from kizuna.store.dialing import Address, Dialer


class Sentinels:
    def __init__(self, addresses: tuple[Address, ...], primary_name: str, dialer: Dialer) -> None:
        self._addresses, self._primary_name, self._dialer = addresses, primary_name, dialer
        # Each search starts at another sentinel: one that is cut off may go on naming yesterday's primary.
        self._starts = itertools.cycle(range(len(addresses)))

    async def locate(self) -> Address:
        """The primary's address. Raises what keeps us from it; a refused sign-in as such, for it is not repeated."""
        start = next(self._starts)
        problems: list[str] = []
        refusal: StoreError | None = None
        for address in self._addresses[start:] + self._addresses[:start]:
            try:
                found = await self._ask(address)
            except StoreError as error:
                problems.append(f"{address}: {error.what}")
                if isinstance(error, (SignInRefused, TlsRefused)):
                    refusal = error
                continue
            if found is not None:
                return found
            problems.append(f"{address}: knows no primary called {self._primary_name!r}")
        if refusal is not None:
            raise refusal
        raise Unreachable(
            f"no sentinel names a primary [{'; '.join(problems)}]",
            f"redis+sentinel://…/{self._primary_name}",
            "check the name and addresses in store.url (SENTINEL MASTERS lists the names)",
        )

    async def _ask(self, address: Address) -> Address | None:
        wire = await self._dialer.open(address)
        try:
            deadline = asyncio.get_running_loop().time() + self._dialer.connect_timeout_s
            reply = await wire.send(("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._primary_name), deadline)
        finally:
            await wire.aclose()
        return None if reply is None else Address(reply[0].decode(), int(reply[1]))
