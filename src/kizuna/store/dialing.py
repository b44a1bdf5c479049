"""Opens one connection: address, TLS, sign-in; and says in a sentence why it did not work."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import ssl
from dataclasses import dataclass
from typing import Any

from kizuna.errors import SettingsError, SignInRefused, StoreError, TlsRefused, Unreachable
from kizuna.settings import StoreSettings
from kizuna.store.wire import OnLost, OnPush, Wire


@dataclass(frozen=True)
class Address:
    """A host and port, or, with port 0, the path of a unix socket."""

    host: str
    port: int = 0

    def __str__(self) -> str:
        if not self.port:
            return self.host
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, kw_only=True)
class Dialer:
    """Everything that the connections to one kind of server have in common."""

    username: str = ""
    password: str = ""
    database: int = 0
    tls: ssl.SSLContext | None = None
    client_name: str = "kizuna"
    connect_timeout_s: float = 2.0
    silence_s: float = 5.0
    in_flight_bytes: int = 32 * 1024 * 1024
    primary_only: bool = False
    """Ask for the role, and do not take a replica: behind Sentinel an address may be yesterday's."""

    async def open(self, address: Address, on_push: OnPush | None = None, on_lost: OnLost | None = None) -> Wire:
        """A connection that is signed in and speaks RESP3. Raises a `NotSent` that says what is wrong."""
        try:
            async with asyncio.timeout(self.connect_timeout_s):
                wire = await self._connect(address, on_push, on_lost)
                try:
                    await self._sign_in(wire)
                except BaseException:
                    wire.abort("the sign-in failed")
                    raise
        except TimeoutError as error:
            # errno is set when the kernel gave up on the peer; both mean the same to the caller.
            detail = f" ({error})" if error.errno else ""
            raise Unreachable(
                f"no connection within {self.connect_timeout_s:g}s{detail}",
                str(address),
                "is the address right, and does the network let us through?",
            ) from None
        except ssl.SSLError as error:
            raise TlsRefused(f"TLS failed: {error.reason or error}", str(address), _tls_hint(error)) from None
        except OSError as error:
            raise Unreachable(_os_reason(error), str(address), _os_hint(error, tls=self.tls is not None)) from None
        return wire

    async def _connect(self, address: Address, on_push: OnPush | None, on_lost: OnLost | None) -> Wire:
        loop = asyncio.get_running_loop()

        def wire() -> Wire:
            return Wire(
                str(address),
                silence_s=self.silence_s,
                in_flight_bytes=self.in_flight_bytes,
                on_push=on_push,
                on_lost=on_lost,
            )

        if not address.port:
            _, made = await loop.create_unix_connection(wire, address.host)
            return made
        transport, made = await loop.create_connection(
            wire, address.host, address.port, ssl=self.tls, server_hostname=address.host if self.tls else None
        )
        _notice_dead_peers(transport.get_extra_info("socket"), self.silence_s)
        return made

    async def _sign_in(self, wire: Wire) -> None:
        deadline = asyncio.get_running_loop().time() + self.connect_timeout_s
        hello: list[str] = ["HELLO", "3"]
        if self.password:
            hello += ["AUTH", self.username or "default", self.password]
        hello += ["SETNAME", f"{self.client_name}:{os.getpid()}"]
        waiting = [wire.send(tuple(hello), deadline)]
        if self.database:
            waiting.append(wire.send(("SELECT", self.database), deadline))
        if self.primary_only:
            waiting.append(wire.send(("ROLE",), deadline))
        try:
            replies = await asyncio.gather(*waiting)
        except StoreError as error:
            raise _sign_in_refused(error) from None
        if self.primary_only and replies[-1][0] != b"master":
            raise Unreachable("this server is a replica now", wire.server, "the next primary is being looked for")


def tls_context(settings: StoreSettings) -> ssl.SSLContext:
    """Verification is always on; a CA of one's own and a client certificate come from settings."""
    try:
        context = ssl.create_default_context(cafile=settings.tls_ca_file or None)
        if settings.tls_cert_file:
            context.load_cert_chain(settings.tls_cert_file, settings.tls_key_file or None)
    except (OSError, ssl.SSLError) as error:
        files = ", ".join(filter(None, (settings.tls_ca_file, settings.tls_cert_file, settings.tls_key_file)))
        raise SettingsError(f"store.tls_*: {files} cannot be used: {error}") from None
    return context


def _notice_dead_peers(sock: socket.socket, silence_s: float) -> None:
    """Keepalive finds a dead peer on an idle socket, TCP_USER_TIMEOUT while data is unacknowledged."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    options: dict[str, int] = {
        "TCP_KEEPIDLE": 5,
        "TCP_KEEPINTVL": 2,
        "TCP_KEEPCNT": 3,
        "TCP_USER_TIMEOUT": int(max(silence_s, 1.0) * 1000),
    }
    for name, value in options.items():
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _sign_in_refused(error: StoreError) -> StoreError:
    text = error.what
    if "HELLO" in text and "unknown command" in text:
        return SignInRefused(text, error.server, "Redis 6.2, Valkey 7.2 or newer is needed")
    if text.startswith("DENIED"):
        return SignInRefused(text.split(".")[0], error.server, "set a password there, or bind it to this host")
    if text.startswith(("NOPERM", "ERR invalid password", "ERR DB index", "ERR Client sent AUTH")):
        return SignInRefused(text, error.server, "check store.username, store.password and the database number")
    if "max number of clients" in text:
        return Unreachable(text, error.server, "raise maxclients, or close connections that nobody uses")
    return error


def _os_reason(error: OSError) -> str:
    if isinstance(error, socket.gaierror):
        return "the host name is not known"
    return f"no connection ({os.strerror(error.errno) if error.errno else error})"


def _os_hint(error: OSError, *, tls: bool) -> str:
    if isinstance(error, socket.gaierror):
        return "check store.url"
    if error.errno == errno.ECONNREFUSED:
        return "is the server running there? `kizuna server start` runs the embedded one"
    if error.errno == errno.ENOENT:
        return "there is no such socket; is the server running?"
    if error.errno == errno.ECONNRESET and not tls:
        return "does the server want TLS? then use rediss://"
    return "check store.url and the network"


def _tls_hint(error: ssl.SSLError) -> str:
    reason: Any = error.reason or ""
    if "CERTIFICATE_VERIFY_FAILED" in reason:
        return "the server's certificate is not from a CA we trust, or not for this name: set store.tls_ca_file"
    if "CERTIFICATE_REQUIRED" in reason or "HANDSHAKE_FAILURE" in reason:
        return "the server wants a client certificate: set store.tls_cert_file and store.tls_key_file"
    if "WRONG_VERSION_NUMBER" in reason or "RECORD_LAYER" in reason:
        return "the server does not speak TLS on this port: use redis:// or the TLS port"
    return "check store.url and the store.tls_* settings"
