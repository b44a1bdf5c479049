"""Opens one connection: address, TLS, sign-in; and says in a sentence why it did not work."""

from __future__ import annotations

import asyncio
import errno
import os
import re
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kizuna.errors import (
    NotSent,
    OutcomeUnknown,
    SettingsError,
    SignInRefused,
    StoreError,
    TlsRefused,
    Unreachable,
)
from kizuna.settings import Secret, StoreSettings
from kizuna.store.wire import OnLost, OnPush, Wire

_NO_PASSWORD = Secret("")
_NETWORK = "is the address right, and does the network let us through?"
# Plain servers keep silent: to them the start of a handshake is the start of a long line.
_NETWORK_OR_PLAIN = "is the address right, does the network let us through, and does the server speak TLS there?"
_WANTS_CERTIFICATE = "does the server want a client certificate? set store.tls_cert_file and store.tls_key_file"
_WANTS_TLS = "is it Redis or Valkey at this port, and does it want TLS? then use rediss://"


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
    password: Secret = _NO_PASSWORD
    database: int = 0
    tls: ssl.SSLContext | None = None
    client_name: str = "kizuna"
    connect_timeout_s: float = 2.0
    silence_s: float = 5.0
    in_flight_bytes: int = 32 * 1024 * 1024
    primary_only: bool = False
    """Do not take a replica: behind Sentinel an address may be yesterday's."""

    async def open(
        self,
        address: Address,
        on_push: OnPush | None = None,
        on_read: Callable[[], None] | None = None,
        on_lost: OnLost | None = None,
    ) -> Wire:
        """A connection that is signed in and speaks RESP3. Raises a `NotSent` that says what is wrong."""
        server = str(address)
        try:
            async with asyncio.timeout(self.connect_timeout_s):
                wire = await self._connect(address, on_push, on_read, on_lost)
                try:
                    await self._sign_in(wire)
                except BaseException:
                    wire.abort("the sign-in failed")
                    raise
        except TimeoutError as error:
            # errno is set when the kernel gave up on the peer; both mean the same to the caller.
            detail = f" ({error})" if error.errno else ""
            hint = _NETWORK_OR_PLAIN if self.tls else _NETWORK
            raise Unreachable(f"no connection within {self.connect_timeout_s:g}s{detail}", server, hint) from None
        except ssl.SSLEOFError as error:
            raise Unreachable("the connection was lost in the TLS handshake", server, _tls_hint(error)) from None
        except ssl.SSLError as error:
            raise TlsRefused(f"TLS failed: {_tls_reason(error)}", server, _tls_hint(error)) from None
        except OSError as error:
            raise Unreachable(_os_reason(error), server, _os_hint(error, tls=self.tls is not None)) from None
        except ValueError:
            # A label that is empty or too long does not even get as far as the resolver.
            raise Unreachable("this cannot be the name of a host", server, "check store.url") from None
        return wire

    async def _connect(
        self, address: Address, on_push: OnPush | None, on_read: Callable[[], None] | None, on_lost: OnLost | None
    ) -> Wire:
        loop = asyncio.get_running_loop()

        def wire() -> Wire:
            return Wire(
                str(address),
                silence_s=self.silence_s,
                in_flight_bytes=self.in_flight_bytes,
                on_push=on_push,
                on_read=on_read,
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
        # Also without a password: who names a user must not be taken for the default one.
        if self.username or self.password:
            hello += ["AUTH", self.username or "default", self.password]
        hello += ["SETNAME", f"{self.client_name}:{os.getpid()}"]
        waiting = [wire.send(tuple(hello), deadline)]
        if self.database:
            waiting.append(wire.send(("SELECT", self.database), deadline))
        try:
            greeting, *_ = await asyncio.gather(*waiting)
        except OutcomeUnknown as error:
            if wire.failure is not None:
                raise wire.failure from None
            hint = _WANTS_CERTIFICATE if self.tls else _WANTS_TLS
            raise Unreachable(error.what, error.server, hint) from None
        except StoreError as error:
            raise _sign_in_refused(error) from None
        if self.primary_only and greeting.get(b"role") != b"master":
            raise Unreachable("this server is a replica now", wire.server, "the next primary is being looked for")


def tls_context(settings: StoreSettings) -> ssl.SSLContext:
    """Verification is always on; a CA of one's own and a client certificate come from settings."""
    try:
        context = ssl.create_default_context(cafile=expanded(settings.tls_ca_file))
        if settings.tls_cert_file:
            # A password is given so that OpenSSL does not ask for one at the terminal.
            cert_file, key_file = expanded(settings.tls_cert_file), expanded(settings.tls_key_file)
            context.load_cert_chain(cert_file or "", key_file, password="")
    except (OSError, ssl.SSLError) as error:
        files = ", ".join(filter(None, (settings.tls_ca_file, settings.tls_cert_file, settings.tls_key_file)))
        raise SettingsError(f"store.tls_*: {files} cannot be used: {error}") from None
    return context


def expanded(file: str) -> str | None:
    """With the user's home for ~, as in a shell; None where there is no file."""
    return os.path.expanduser(file) or None  # noqa: PTH111 - Path raises where there is no home


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
    if isinstance(error, NotSent):
        return error
    if "HELLO" in text and "unknown command" in text:
        return SignInRefused(text, error.server, "Redis 6.2, Valkey 7.2 or newer is needed")
    if text.startswith("DENIED"):
        return SignInRefused(text.split(".")[0], error.server, "set a password there, or bind it to this host")
    if "max number of clients" in text:
        return Unreachable(text, error.server, "raise maxclients, or close connections that nobody uses")
    if text.startswith("ERR DB index"):
        return SignInRefused(text, error.server, "check the database number in store.url (CONFIG GET databases)")
    if text.startswith("NOPERM"):
        return SignInRefused(text, error.server, "grant it to this ACL user (ACL SETUSER), or use database 0")
    return Unreachable(text, error.server, error.hint)


def _os_reason(error: OSError) -> str:
    if isinstance(error, socket.gaierror):
        return "the host name is not known"
    number = _errno(error)
    # asyncio has no words for a peer that leaves in the middle of a TLS handshake.
    return f"no connection ({os.strerror(number) if number else str(error) or 'the server closed it'})"


def _os_hint(error: OSError, *, tls: bool) -> str:
    if isinstance(error, socket.gaierror):
        return "check store.url"
    number = _errno(error)
    if number == errno.ECONNREFUSED:
        return "is the server running there? `kizuna server start` runs the embedded one"
    if number == errno.ENOENT:
        return "there is no such socket; is the server running?"
    if number == errno.EACCES:
        return "may we open that socket?"
    if number in (errno.ECONNRESET, errno.EPIPE, None):
        return _WANTS_CERTIFICATE if tls else _WANTS_TLS
    return "check store.url and the network"


def _errno(error: OSError) -> int | None:
    """Of a host with several addresses asyncio tells only in the text why each of them failed."""
    if error.errno is not None:
        return error.errno
    found = re.search(r"\[Errno (\d+)\]", str(error))
    return int(found[1]) if found else None


def _certificate_hint(error: ssl.SSLCertVerificationError) -> str:
    if "expired" in error.verify_message or "not yet valid" in error.verify_message:
        return "renew the server's certificate, or mend the clock of whichever machine is wrong"
    if "mismatch" in error.verify_message:
        return "the certificate is for another name: use that one in store.url, or have one made for this"
    return "the server's certificate is not from a CA we trust: set store.tls_ca_file"


def _tls_reason(error: ssl.SSLError) -> str:
    reason = error.reason or str(error)
    return f"{reason}, {error.verify_message}" if isinstance(error, ssl.SSLCertVerificationError) else reason


def _tls_hint(error: ssl.SSLError) -> str:
    reason: Any = error.reason or ""
    if isinstance(error, ssl.SSLCertVerificationError):
        return _certificate_hint(error)
    if "CERTIFICATE_REQUIRED" in reason or "HANDSHAKE_FAILURE" in reason:
        return "the server wants a client certificate: set store.tls_cert_file and store.tls_key_file"
    if "WRONG_VERSION_NUMBER" in reason or "RECORD_LAYER" in reason:
        return "the server does not speak TLS on this port: use redis:// or the TLS port"
    return "check store.url and the store.tls_* settings"
