"""Reads store.url: what kind of place it names, and where to ask first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

from kizuna.errors import SettingsError
from kizuna.settings import Secret, StoreSettings, redact_url
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
_NO_PASSWORD = Secret("")
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
    password: Secret = _NO_PASSWORD


def parse_target(settings: StoreSettings) -> Target:
    """Raises SettingsError where the URL cannot be meant; a password is never part of the text."""
    shown = redact_url(settings.url)
    try:
        url = urlsplit(settings.url if "://" in settings.url else f"{settings.url}://")
        # The same servers under their other name: valkey://, valkeys+cluster:// …
        kind, tls = _SCHEMES[url.scheme.replace("valkey", "redis", 1)]
    except (KeyError, ValueError):
        raise SettingsError(f"store.url {shown!r} is none of {', '.join(f'{s}://' for s in _SCHEMES)}") from None
    try:
        _check_slashes(settings.url)
        _check_parts(url, kind)
        return Target(
            kind=kind,
            addresses=_addresses(url, kind),
            primary_name=url.path.strip("/") if kind == "sentinel" else "",
            database=_database(url, kind),
            tls=tls,
            username=settings.username or unquote(url.username or ""),
            password=Secret(settings.password or unquote(url.password or "")),
        )
    except ValueError as error:
        raise SettingsError(f"store.url {shown!r}: {error}") from None


def _check_slashes(url: str) -> None:
    scheme, colon, rest = url.partition(":")
    if colon and not rest.startswith("//"):
        raise ValueError(f"two slashes follow the colon, as in {scheme}://")


def _check_parts(url: SplitResult, kind: Kind) -> None:
    if url.fragment or "@" in url.path + url.query:
        # Nothing is quoted from here on that could be a piece of it.
        raise ValueError("a user or password with one of @ / ? # needs it percent-encoded, as in %40 for @")
    unknown = sorted(set(parse_qs(url.query, keep_blank_values=True)) - {"db"})
    if unknown:
        raise ValueError(f"{unknown[0]!r} is not known here; only ?db=<number> is")
    if kind == "cluster" and (url.path.strip("/") or url.query):
        raise ValueError("a cluster has no database numbers")


def _addresses(url: SplitResult, kind: Kind) -> tuple[Address, ...]:
    if kind == "embedded":
        if url.netloc or url.path.strip("/") or url.query:
            raise ValueError("embedded:// takes nothing behind it; the [embedded] settings say where it lives")
        return ()
    hosts = url.netloc.rpartition("@")[2].split(",")
    if url.scheme == "unix":
        if not url.path or hosts != [""]:
            raise ValueError("the path of the socket starts with a third slash, as in unix:///run/valkey.sock")
        return (Address(unquote(url.path)),)
    if kind == "single" and len(hosts) > 1:
        raise ValueError("several hosts need redis+sentinel:// or redis+cluster://")
    if len(hosts) > 1 and not all(hosts):
        raise ValueError("there is nothing between two commas, or after the last")
    if kind == "sentinel" and not url.path.strip("/"):
        raise ValueError("the name of the primary is missing, as in redis+sentinel://host:26379/main")
    return tuple(_address(host, _DEFAULT_PORTS[kind]) for host in hosts)


def _address(host_and_port: str, default_port: int) -> Address:
    parsed = urlsplit(f"//{host_and_port}")
    try:
        port = default_port if parsed.port is None else parsed.port
    except ValueError:
        # Not quoted: after a slash in a password, it is the first half of it that stands here.
        port = 0
    if port == 0:
        raise ValueError("a port is a number from 1 to 65535 (in a password, : / ? # and @ are percent-encoded)")
    return Address(parsed.hostname or "127.0.0.1", port)


def _database(url: SplitResult, kind: Kind) -> int:
    named = url.path.strip("/") if kind == "single" and url.scheme != "unix" else ""
    named = named or parse_qs(url.query).get("db", ["0"])[0]
    if not named.isdecimal():
        raise ValueError(f"{named!r} is not the number of a database")
    return int(named)
