from __future__ import annotations

import pytest

from kizuna.errors import Refused
from kizuna.testing import ClusterSetup, ServerProcess
from kizuna.testing.waiting import blocking_until


def other_than(cluster: ClusterSetup, owner: ServerProcess) -> ServerProcess:
    return next(server for server in cluster.servers if server is not owner)


def test_every_slot_has_one_of_three_owners(cluster: ClusterSetup) -> None:
    assert [cluster.owner_of(slot) for slot in (0, 8000, 16383)] == cluster.servers
    assert cluster.url == "redis+cluster://" + ",".join(f"127.0.0.1:{s.port}" for s in cluster.servers)


def test_a_moved_slot_takes_its_keys_along(cluster: ClusterSetup, root: str) -> None:
    slot = cluster.slot_of(f"{{{root}}}")
    owner = cluster.owner_of(slot)
    target = other_than(cluster, owner)
    for number in range(250):
        owner.call("SET", f"{{{root}}}:{number}", number)

    cluster.move_slot(slot, target)

    assert cluster.owner_of(slot) is target
    assert target.call("GET", f"{{{root}}}:249") == b"249"
    assert target.call("CLUSTER", "COUNTKEYSINSLOT", slot) == 250
    with pytest.raises(Refused, match=f"MOVED {slot} {target.address}"):
        owner.call("GET", f"{{{root}}}:249")
    target.call("DEL", *(f"{{{root}}}:{number}" for number in range(250)))


def test_a_half_moved_slot_asks_for_the_keys_that_have_gone(cluster: ClusterSetup, root: str) -> None:
    slot = cluster.slot_of(f"{{{root}}}")
    owner = cluster.owner_of(slot)
    target = other_than(cluster, owner)
    for number in range(3):
        owner.call("SET", f"{{{root}}}:{number}", number)

    cluster.start_moving(slot, target)
    assert cluster.move_keys(slot, target, at_most=2) == 2

    assert owner.call("CLUSTER", "COUNTKEYSINSLOT", slot) == 1
    with pytest.raises(Refused, match=f"ASK {slot} {target.address}"):
        owner.call("GET", f"{{{root}}}:new")
    assert cluster.move_keys(slot, target) == 1
    cluster.finish_moving(slot, target)
    assert target.call("CLUSTER", "COUNTKEYSINSLOT", slot) == 3
    target.call("DEL", *(f"{{{root}}}:{number}" for number in range(3)))


def test_a_replica_takes_over_for_its_primary() -> None:
    with ClusterSetup(replicas_each=1, node_timeout_ms=1000) as cluster:
        primary, replica = cluster.servers[0], cluster.servers[3]
        assert cluster.owner_of(0) is primary
        primary.kill()

        blocking_until(lambda: cluster.owner_of(0) is replica, within_s=15)
