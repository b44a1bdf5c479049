"""What the commands of `kizuna keys` have in common: the server, the patterns, a bar that shows progress."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

import click

from kizuna.cli.output import say

if TYPE_CHECKING:
    from kizuna.settings import Settings
    from kizuna.store.client import Store
    from kizuna.store.scanning import Wanted
    from kizuna.survey.known import Known

anywhere_option = click.option(
    "--anywhere", is_flag=True, help="Take PATTERN as it stands: also keys that are not below a root."
)
quiet_option = click.option("--quiet", "-q", is_flag=True, help="Show no progress.")


@asynccontextmanager
async def opened(settings: Settings, *, may_start: bool = False) -> AsyncIterator[Store]:
    """The server in use, also one that we would not keep data on. An embedded one is not started for looking."""
    from kizuna.cli.status import refuse_to_start_it
    from kizuna.store.client import Store

    if not may_start:
        refuse_to_start_it(settings)
    store = Store(settings)
    await store.open()
    try:
        yield store
    finally:
        await store.aclose()


def wanted_of(known: Known, given: tuple[str, ...], *, anywhere: bool) -> Wanted:
    from kizuna.store.scanning import Wanted

    return Wanted(given or ("*",)) if anywhere else known.wanted(*given)


def warn_of_moved_slots(count: int) -> None:
    if count:
        say(f"{count:,} slots moved between servers meanwhile: keys may be missing, or there twice. Run it again.")


@contextmanager
def progress_bar(label: str, *, quiet: bool) -> Iterator[Callable[[int, int], None]]:
    """A function to be told how much is done; draws a bar on stderr, if a person looks at it."""
    if quiet or not sys.stderr.isatty():
        yield lambda done, total: None
        return
    bar: Any = click.progressbar(length=100, label=label, file=sys.stderr, width=40, show_eta=True)
    with bar:
        shown = 0

        def show(done: int, total: int) -> None:
            nonlocal shown
            percent = min(100 * done // total, 100) if total else 100
            if percent > shown:
                bar.update(percent - shown)
                shown = percent

        yield show
        bar.update(100 - shown)


def counted(keys: int) -> str:
    return "1 key" if keys == 1 else f"{keys:,} keys"


def nothing_matches(known: Known, given: tuple[str, ...], *, anywhere: bool) -> str:
    what = ", ".join(given) or "anything"
    return f"No key matches {what}" + ("." if anywhere else f" below {either(known.names)}.")


def either(names: Sequence[str]) -> str:
    """`a, b or c`."""
    return " or ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def ends_in(ttl_ms: int | None) -> str:
    from kizuna.cli.status import duration

    return "-" if ttl_ms is None else duration(ttl_ms // 1000) if ttl_ms >= 1000 else f"{ttl_ms} ms"
