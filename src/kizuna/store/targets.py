"""Reads store.url: what kind of place it names, and where to ask first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

from kizuna.errors import SettingsError
from kizuna.settings import StoreSettings, redact_url
from kizuna.store.dialing import Address

Kind = Literal["embedded", "single", "sentinel", "cluster"]

_SCHEMES: dict[str, tuple[Kind, bool]] = {
    "embedded": ("embedded", False),
    "redis": ("single", False),
    "rediss": ("single", True),
    "unix": ("single", False),
    "redis+sentinel": ("sentinel", False),
    "rediss+sentinel": ("sentinel", True),
    "redis+cluster": ("cluster", False),
    "rediss+cluster": ("cluster", True),
}
_DEFAULT_PORTS: dict[Kind, int] = {"embedded": 0, "single": 6379, "sentinel": 26379, "cluster": 6379}


@dataclass(frozen=True, kw_only=True)
class Target:
    kind: Kind
    addresses: tuple[Address, ...] = ()
    """The server; or the sentinels; or some nodes of the cluster."""
    primary_name: str = ""
    database: int = 0
    tls: bool = False
    username: str = ""
    password: str = ""


def parse_target(settings: StoreSettings) -> Target:
    """Raises SettingsError where the URL cannot be meant; a password is never part of the text."""
    shown = redact_url(settings.url)
    try:
        url = urlsplit(settings.url if "://" in settings.url else f"{settings.url}://")
        kind, tls = _SCHEMES[url.scheme]
    except (KeyError, ValueError):
        raise SettingsError(f"store.url {shown!r} is none of {', '.join(f'{s}://' for s in _SCHEMES)}") from None
    try:
        return Target(
            kind=kind,
            addresses=_addresses(url, kind),
            primary_name=url.path.strip("/") if kind == "sentinel" else "",
            database=_database(url, kind),
            tls=tls,
            username=settings.username or unquote(url.username or ""),
            password=settings.password or unquote(url.password or ""),
        )
    except ValueError as error:
        raise SettingsError(f"store.url {shown!r}: {error}") from None


def _addresses(url: SplitResult, kind: Kind) -> tuple[Address, ...]:
    if kind == "embedded":
        if url.netloc or url.path.strip("/"):
            raise ValueError("embedded:// takes nothing behind it; the [embedded] settings say where it lives")
        return ()
    if url.scheme == "unix":
        if not url.path:
            raise ValueError("the path of the socket is missing, as in unix:///run/valkey.sock")
        return (Address(unquote(url.path)),)
    hosts = url.netloc.rpartition("@")[2].split(",")
    if kind == "single" and len(hosts) > 1:
        raise ValueError("several hosts need redis+sentinel:// or redis+cluster://")
    if kind == "sentinel" and not url.path.strip("/"):
        raise ValueError("the name of the primary is missing, as in redis+sentinel://host:26379/main")
    return tuple(_address(host, _DEFAULT_PORTS[kind]) for host in hosts)


def _address(host_and_port: str, default_port: int) -> Address:
    parsed = urlsplit(f"//{host_and_port}")
    port = parsed.port if parsed.port is not None else default_port
    if port == 0:
        raise ValueError("port 0 is no port")
    return Address(parsed.hostname or "127.0.0.1", port)


def _database(url: SplitResult, kind: Kind) -> int:
    if kind == "cluster" and url.path.strip("/"):
        raise ValueError("a cluster has no database numbers")
    named = url.path.strip("/") if kind == "single" and url.scheme != "unix" else ""
    named = named or parse_qs(url.query).get("db", ["0"])[0]
    if not named.isdecimal():
        raise ValueError(f"{named!r} is not the number of a database")
    return int(named)
