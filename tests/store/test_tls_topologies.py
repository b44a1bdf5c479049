"""TLS where the servers have to be found first: sentinels and nodes of a cluster are trusted in the same way."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme

from kizuna.app import connect
from kizuna.errors import TlsRefused
from kizuna.settings import Settings, StoreSettings
from kizuna.store.events import Change
from kizuna.testing import ChaosProxy, ClusterSetup, ServerProcess
from kizuna.testing.servers import free_port


class Authority:
    """A CA, and the options of a server that it has signed."""

    def __init__(self, folder: Path) -> None:
        self.ca = trustme.CA()
        self.file = str(folder / "ca.pem")
        self.ca.cert_pem.write_to_path(self.file)
        theirs = self.ca.issue_cert("127.0.0.1")
        theirs.cert_chain_pems[0].write_to_path(folder / "server.pem")
        theirs.private_key_pem.write_to_path(folder / "server.key")
        self.port = free_port()
        self.options: dict[str, str | int] = {
            "tls-port": self.port,
            "tls-cert-file": str(folder / "server.pem"),
            "tls-key-file": str(folder / "server.key"),
            "tls-ca-cert-file": self.file,
            "tls-auth-clients": "no",
            "tls-cluster": "yes",
        }

    def context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.ca.issue_cert("127.0.0.1").configure_cert(context)
        return context


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def at(url: str, **options: Any) -> Settings:
    return Settings(store=StoreSettings(url=url, timeout_s=2.0, **options))


@pytest.fixture
def node(redis_binary: str, authority: Authority) -> Iterator[ClusterSetup]:
    with ClusterSetup(primaries=1, binary=redis_binary, config=authority.options) as setup:
        yield setup


@pytest.mark.usefixtures("node")
async def test_a_cluster_is_reached_at_its_tls_ports(authority: Authority) -> None:
    url = f"rediss+cluster://127.0.0.1:{authority.port}"
    async with connect(at(url, tls_ca_file=authority.file)) as k:
        assert list(await k.store.call_each_primary("PING")) == [f"127.0.0.1:{authority.port}"]
        async with k.store.events.watch("a*") as changes:
            await k.store.call("SET", "abc", "x")
            assert await changes.next(timeout_s=5) == Change("abc", "set")
        client = await k.redis()
        assert await client.get("abc") == b"x"

    with pytest.raises(TlsRefused):
        await connect(at(url))


async def test_sentinels_and_the_primary_that_they_name_are_both_asked_with_tls(
    redis_binary: str, authority: Authority
) -> None:
    with (
        ServerProcess(binary=redis_binary, config=authority.options),
        ServerProcess(binary=redis_binary, sentinel=True) as sentinel,
    ):
        sentinel.call("SENTINEL", "MONITOR", "main", "127.0.0.1", authority.port, 1)
        async with ChaosProxy(sentinel.host, sentinel.port, ssl_context=authority.context()) as through:
            url = f"rediss+sentinel://{through.address}/main"
            async with connect(at(url, tls_ca_file=authority.file)) as k:
                assert await k.store.call("SET", "a", "b") == b"OK"
                assert list(await k.store.call_each_primary("PING")) == [f"127.0.0.1:{authority.port}"]
                client = await k.redis()
                assert await client.get("a") == b"b"

            with pytest.raises(TlsRefused):
                await connect(at(url))
