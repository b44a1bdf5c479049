"""How messages between units are told: a line for people, an object for machines."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from kizuna.cli.readable import in_one_line

if TYPE_CHECKING:
    from datetime import datetime

    from kizuna.units.listening import Message
    from kizuna.units.pairing import Fact

# Where the output is no terminal, and has no width of its own.
_WIDTH = 120
_SHORTEST_EXCERPT = 20


class Look(NamedTuple):
    mark: str
    colour: str


LOOKS = {
    "request": Look("→", "cyan"),
    "reply": Look("←", "green"),
    "error": Look("✗", "red"),
    "kept": Look("=", "magenta"),
    "claim": Look("·", "bright_black"),
    "presence": Look("·", "bright_black"),
}


def as_line(fact: Fact, message: Message) -> str:
    """As wide as the terminal, if that leaves room for something of the value."""
    at, look, value = f"{moment_of(message):%H:%M:%S.%f}"[:-3], LOOKS[fact.kind], message.raw
    # Names may hold characters that turn the direction of a terminal, or worse.
    told = in_one_line(f"{look.mark} {sentence(fact)}{time_between(fact)}: ".encode(), 1000)
    size = size_of(value)
    room = width() - len(f"{at} {told}{size} ''")
    shown = f"{size} '{in_one_line(value, max(room, _SHORTEST_EXCERPT))}'" if value else size
    return f"{click.style(at, dim=True)} {click.style(told, fg=look.colour)}{shown}"


def as_data(fact: Fact, message: Message) -> dict[str, Any]:
    return {
        "at": moment_of(message).isoformat(timespec="milliseconds"),
        "kind": fact.kind,
        "path": message.path,
        "unit": message.unit,
        "status": message.status,
        "id": message.id,
        "caller": fact.caller,
        "server": fact.server,
        "after_ms": None if fact.after_s is None else round(fact.after_s * 1000, 3),
        "exact": fact.is_exact and not message.found,
        "bytes": len(message.raw),
        **value_of(message.raw),
    }


def moment_of(message: Message) -> datetime:
    import time
    from datetime import datetime

    return datetime.fromtimestamp(time.time() - (time.monotonic() - message.at_s)).astimezone()


def value_of(raw: bytes) -> dict[str, str | None]:
    """Text as it is, and in base64 what is none."""
    from base64 import b64encode

    try:
        return {"value": raw.decode(), "base64": None}
    except UnicodeDecodeError:
        return {"value": None, "base64": b64encode(raw).decode()}


def sentence(fact: Fact) -> str:
    unit, caller, server, id_ = fact.path.unit, fact.caller, fact.server, fact.id
    match fact.kind:
        case "request":
            return f"{caller} asks {server} {id_}" if server else f"{caller} asks {id_}"
        case "reply":
            return f"{server} answers {caller} {id_}" if server else f"{caller} is answered {id_}"
        case "error":
            return f"{server} fails {caller} {id_}" if server else f"{caller} is failed {id_}"
        case "claim":
            return f"{server} takes {caller} {id_}" if caller else f"{server} takes {id_}"
        case "presence":
            return f"{unit} is there, {id_}"
        case _:
            return f"{unit} keeps {id_}"


def time_between(fact: Fact) -> str:
    if fact.after_s is None:
        return ""
    after_ms = fact.after_s * 1000
    shown = f"{fact.after_s:.2f} s" if after_ms >= 1000 else f"{after_ms:.3g} ms"
    return f" after {shown}" if fact.is_exact else f" after about {shown}"


def size_of(value: bytes) -> str:
    from kizuna.store.health.checks import size

    return size(len(value))


def width() -> int:
    import shutil

    return shutil.get_terminal_size().columns if sys.stdout.isatty() else _WIDTH
