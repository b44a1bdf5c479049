from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kizuna.errors import Refused
from kizuna.testing.waiting import blocking_until

if TYPE_CHECKING:
    from kizuna.testing import SentinelSetup


def test_the_replica_follows_and_all_sentinels_name_the_primary(sentinel: SentinelSetup, scratch: str) -> None:
    primary, replica = sentinel.primary, sentinel.replica
    primary.call("SET", f"{scratch}a", 1)

    blocking_until(lambda: replica.call("GET", f"{scratch}a") == b"1")
    with pytest.raises(Refused, match="READONLY"):
        replica.call("SET", f"{scratch}a", 2)
    addresses = ",".join(f"127.0.0.1:{one.port}" for one in sentinel.sentinels)
    assert sentinel.url == f"redis+sentinel://{addresses}/main"
    for one in sentinel.sentinels:
        address = one.call("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "main")
        assert address == [b"127.0.0.1", str(primary.port).encode()]


def test_a_killed_primary_is_replaced_and_comes_back_as_replica(fresh_sentinel: SentinelSetup) -> None:
    replica = fresh_sentinel.replica
    killed = fresh_sentinel.kill_primary()

    assert fresh_sentinel.wait_for_failover(killed) is replica
    assert fresh_sentinel.primary is replica
    replica.call("SET", "a", 1)

    fresh_sentinel.heal()
    assert fresh_sentinel.replica is killed
    blocking_until(lambda: killed.call("GET", "a") == b"1")
