from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kizuna.errors import Refused
from kizuna.testing.waiting import blocking_until

if TYPE_CHECKING:
    from kizuna.testing import SentinelSetup, ServerProcess


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


def test_only_a_primary_that_was_killed_on_purpose_is_given_up_quickly(fresh_sentinel: SentinelSetup) -> None:
    """On a busy machine a server can be silent for a second, and the next failover would undo the first."""
    assert {_patience_ms(one) for one in fresh_sentinel.sentinels} == {30_000}
    killed = fresh_sentinel.kill_primary()
    assert {_patience_ms(one) for one in fresh_sentinel.sentinels} == {1000, 1500}
    fresh_sentinel.wait_for_failover(killed)

    assert {_patience_ms(one) for one in fresh_sentinel.sentinels} == {30_000, 45_000}


def test_a_paused_primary_is_replaced_and_is_a_replica_when_it_goes_on(fresh_sentinel: SentinelSetup) -> None:
    paused = fresh_sentinel.pause_primary()
    replica = fresh_sentinel.wait_for_failover(paused)
    paused.resume()

    fresh_sentinel.wait_until_settled()
    assert (fresh_sentinel.primary, fresh_sentinel.replica) == (replica, paused)


def test_roles_are_changed_while_both_live(fresh_sentinel: SentinelSetup) -> None:
    former, replica = fresh_sentinel.primary, fresh_sentinel.replica

    assert fresh_sentinel.change_roles() is replica
    fresh_sentinel.wait_until_settled()
    assert fresh_sentinel.replica is former


def _patience_ms(sentinel: ServerProcess) -> int:
    """For how long the primary may be silent."""
    view = sentinel.call("SENTINEL", "MASTER", "main")
    return int(view[view.index(b"down-after-milliseconds") + 1])
