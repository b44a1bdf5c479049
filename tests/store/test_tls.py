"""TLS: verification is on, a CA of one's own and a client certificate work, and each mistake has its sentence."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import trustme

from kizuna.app import connect
from kizuna.errors import SettingsError, TlsRefused, Unreachable
from kizuna.settings import Settings, StoreSettings
from kizuna.store.client import Store
from kizuna.testing import ChaosProxy, ServerProcess, eventually
from kizuna.testing.servers import free_port

MakeProxy = Callable[..., Awaitable[ChaosProxy]]

_NOT_TRUSTED = "the server's certificate is not from a CA we trust: set store.tls_ca_file"


class Files:
    """A CA, and what it signed for us, where settings look for it."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.ca = trustme.CA()
        self.ca_file, self.cert_file, self.key_file = (str(folder / name) for name in ("ca", "cert", "key"))
        ours = self.ca.issue_cert("client.kizuna.test")
        self.ca.cert_pem.write_to_path(self.ca_file)
        ours.cert_chain_pems[0].write_to_path(self.cert_file)
        ours.private_key_pem.write_to_path(self.key_file)

    def server_context(self, *names: str, asks_for_certificate: bool = False) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.ca.issue_cert(*(names or ("127.0.0.1",))).configure_cert(context)
        if asks_for_certificate:
            self.ca.configure_trust(context)
            context.verify_mode = ssl.CERT_REQUIRED
        return context


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path / "ours")


def at(url: str, **options: Any) -> Settings:
    return Settings(store=StoreSettings(url=url, **{"timeout_s": 1.0, **options}))


async def refusal_of(url: str, **options: Any) -> Exception:
    with pytest.raises(Exception) as refused:  # noqa: PT011 - the caller looks at it
        async with connect(at(url, **options)):
            pass
    return refused.value


async def test_a_ca_of_ones_own_is_trusted(proxy: MakeProxy, files: Files, scratch: str) -> None:
    through = await proxy(ssl_context=files.server_context())
    async with connect(at(through.url, tls_ca_file=files.ca_file)) as k:
        await k.store.call("SET", f"{scratch}k", b"x" * 1_000_000)
        assert await k.store.get(f"{scratch}k") == b"x" * 1_000_000


async def test_a_server_that_speaks_tls_itself(redis_binary: str, files: Files, tmp_path: Path) -> None:
    theirs = files.ca.issue_cert("127.0.0.1")
    theirs.cert_chain_pems[0].write_to_path(tmp_path / "server.pem")
    theirs.private_key_pem.write_to_path(tmp_path / "server.key")
    port = free_port()
    config: dict[str, str | int] = {
        "tls-port": port,
        "tls-cert-file": str(tmp_path / "server.pem"),
        "tls-key-file": str(tmp_path / "server.key"),
        "tls-ca-cert-file": files.ca_file,
    }
    ours = {"tls_ca_file": files.ca_file, "tls_cert_file": files.cert_file, "tls_key_file": files.key_file}
    with ServerProcess(binary=redis_binary, config=config):
        async with connect(at(f"rediss://127.0.0.1:{port}", **ours)) as k:
            assert await k.store.call("SET", "k", b"x" * 1_000_000) == b"OK"
            assert await k.store.get("k") == b"x" * 1_000_000

        without = await refusal_of(f"rediss://127.0.0.1:{port}", tls_ca_file=files.ca_file)
        plain = await refusal_of(f"redis://127.0.0.1:{port}")

    assert "set store.tls_cert_file and store.tls_key_file" in str(without)
    assert "does it want TLS? then use rediss://" in str(plain)


async def test_a_client_certificate_opens_the_door(proxy: MakeProxy, files: Files) -> None:
    through = await proxy(ssl_context=files.server_context(asks_for_certificate=True))
    ours = {"tls_ca_file": files.ca_file, "tls_cert_file": files.cert_file, "tls_key_file": files.key_file}
    async with connect(at(through.url, **ours)) as k:
        assert await k.store.call("PING") == b"PONG"


async def test_a_connection_with_tls_comes_back(proxy: MakeProxy, files: Files) -> None:
    through = await proxy(ssl_context=files.server_context())
    async with connect(at(through.url, tls_ca_file=files.ca_file)) as k:
        await through.cut()
        (link,) = k.store.topology.primaries()
        await eventually(lambda: link.connections == 2)
        assert await k.store.call("PING") == b"PONG"


async def test_a_ca_that_we_do_not_know_is_refused_at_once(proxy: MakeProxy, files: Files, tmp_path: Path) -> None:
    through = await proxy(ssl_context=files.server_context())
    other = Files(tmp_path / "other")
    began = time.monotonic()
    for options in ({}, {"tls_ca_file": other.ca_file}):
        error = await refusal_of(through.url, timeout_s=20, **options)

        assert type(error) is TlsRefused
        assert error.outcome == "not sent"
        assert str(error).startswith("TLS failed: CERTIFICATE_VERIFY_FAILED, ")
        assert str(error).endswith(f" at {through.address} (not sent); {_NOT_TRUSTED}")
    assert time.monotonic() - began < 4.5


async def test_a_certificate_for_another_name_is_refused(proxy: MakeProxy, files: Files) -> None:
    through = await proxy(ssl_context=files.server_context("elsewhere.test"))
    error = await refusal_of(through.url, tls_ca_file=files.ca_file)

    assert type(error) is TlsRefused
    assert "the certificate is for another name: use that one in store.url" in str(error)


async def test_a_certificate_that_has_expired_is_refused(proxy: MakeProxy, files: Files) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    yesterday = datetime.now(UTC) - timedelta(days=1)
    files.ca.issue_cert("127.0.0.1", not_after=yesterday).configure_cert(context)
    through = await proxy(ssl_context=context)
    error = await refusal_of(through.url, tls_ca_file=files.ca_file)

    assert type(error) is TlsRefused
    assert "certificate has expired" in str(error)
    assert "renew the server's certificate, or mend the clock" in str(error)


async def test_files_in_the_home_folder_are_found(
    proxy: MakeProxy, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    through = await proxy(ssl_context=files.server_context(asks_for_certificate=True))
    monkeypatch.setenv("HOME", str(Path(files.ca_file).parent))
    async with connect(at(through.url, tls_ca_file="~/ca", tls_cert_file="~/cert", tls_key_file="~/key")) as k:
        assert await k.store.call("PING") == b"PONG"


@contextmanager
def handshaking(context: ssl.SSLContext) -> Iterator[str]:
    """The address of somebody who shakes hands as OpenSSL does, saying why not; and then leaves."""

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:  # closed: the test is over
                return
            secured = context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
            with secured, suppress(OSError):
                with suppress(ssl.SSLError):
                    secured.do_handshake()
                # Left with unread bytes behind, the system would reset the connection and what we said with it.
                while socket.socket.recv(secured, 1000):
                    pass

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_a_missing_client_certificate_is_named(files: Files, version: ssl.TLSVersion) -> None:
    context = files.server_context(asks_for_certificate=True)
    context.maximum_version = version
    began = time.monotonic()
    with handshaking(context) as address:
        error = await refusal_of(f"rediss://{address}", tls_ca_file=files.ca_file, timeout_s=20)

    assert type(error) is TlsRefused
    assert error.outcome == "not sent"
    assert str(error).endswith(
        "(not sent); the server wants a client certificate: set store.tls_cert_file and store.tls_key_file"
    )
    assert time.monotonic() - began < 4.5


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_a_server_that_leaves_without_a_word_may_want_a_client_certificate(
    proxy: MakeProxy, files: Files, version: ssl.TLSVersion
) -> None:
    """asyncio's own TLS servers do."""
    context = files.server_context(asks_for_certificate=True)
    context.maximum_version = version
    through = await proxy(ssl_context=context)
    error = await refusal_of(through.url, tls_ca_file=files.ca_file)

    assert type(error) is Unreachable
    assert str(error).endswith(
        "does the server want a client certificate? set store.tls_cert_file and store.tls_key_file"
    )


async def test_plain_text_to_a_tls_port_is_named(proxy: MakeProxy, files: Files) -> None:
    through = await proxy(ssl_context=files.server_context())
    error = await refusal_of(f"redis://{through.address}")

    assert type(error) is Unreachable
    assert error.outcome == "not sent"
    assert str(error).endswith("is it Redis or Valkey at this port, and does it want TLS? then use rediss://")


async def test_tls_to_a_plain_port_is_named() -> None:
    """Whatever a server would do with it: one that answers shows that it speaks no TLS, one that waits may."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1000)
        writer.write(b"-ERR unknown command\r\n")
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as plain:
        error = await refusal_of(f"rediss://127.0.0.1:{plain.sockets[0].getsockname()[1]}")

    assert type(error) is TlsRefused
    assert "WRONG_VERSION_NUMBER" in str(error) or "RECORD_LAYER" in str(error)
    assert str(error).endswith("the server does not speak TLS on this port: use redis:// or the TLS port")


async def test_a_handshake_that_stalls_ends_in_time(proxy: MakeProxy, files: Files) -> None:
    through = await proxy()
    through.stall()
    began = time.monotonic()
    error = await refusal_of(f"rediss://{through.address}", tls_ca_file=files.ca_file, connect_timeout_s=0.2)

    assert type(error) is Unreachable
    assert str(error) == (
        f"no connection within 0.2s at {through.address} (not sent); "
        "is the address right, does the network let us through, and does the server speak TLS there?"
    )
    assert time.monotonic() - began < 4.5


@pytest.mark.parametrize("name", ["tls_ca_file", "tls_cert_file"])
async def test_files_that_cannot_be_used_are_named(tmp_path: Path, name: str) -> None:
    missing, nonsense = tmp_path / "missing", tmp_path / "nonsense"
    nonsense.write_text("nonsense")
    for path in (missing, nonsense):
        error = await refusal_of("rediss://127.0.0.1:1", **{name: str(path)})

        assert type(error) is SettingsError
        assert str(error).startswith(f"store.tls_*: {path} cannot be used: ")


def test_a_key_with_a_passphrase_is_refused_and_nobody_is_asked_for_it(files: Files, tmp_path: Path) -> None:
    from cryptography.hazmat.primitives import serialization

    key = serialization.load_pem_private_key(Path(files.key_file).read_bytes(), None)
    sealed = tmp_path / "sealed"
    sealed.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    with pytest.raises(SettingsError, match="cannot be used"):
        Store(at("rediss://h", tls_cert_file=files.cert_file, tls_key_file=str(sealed)))
