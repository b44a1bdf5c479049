"""A Cluster on this machine, whose slots can be moved while somebody uses it, and left half moved."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any, Self

from kizuna.testing.blocks import Block
from kizuna.testing.servers import ServerProcess
from kizuna.testing.waiting import blocking_until

SLOTS = 16_384
_SETTLED_WITHIN_S = 40.0
_KEYS_AT_ONCE = 100


class ClusterSetup(Block):
    """`servers` are the primaries at first, in the order of their slots, then their replicas.

    On a busy machine a node can be silent for a second or two: only where a replica is to take over should
    `node_timeout_ms` be short.
    """

    def __init__(
        self,
        *,
        primaries: int = 3,
        replicas_each: int = 0,
        node_timeout_ms: int = 15_000,
        config: dict[str, str | int] | None = None,
        binary: str = "",
    ) -> None:
        self.servers: list[ServerProcess] = []
        self._primaries = primaries
        self._replicas_each = replicas_each
        self._config: dict[str, str | int] = {
            "notify-keyspace-events": "AKE",
            "cluster-enabled": "yes",
            "cluster-node-timeout": node_timeout_ms,
            # A replica may take over however long it was cut off: tests want the failover, not the caution.
            "cluster-replica-validity-factor": 0,
            **(config or {}),
        }
        self._binary = binary
        self._cleanup = ExitStack()

    @property
    def url(self) -> str:
        return "redis+cluster://" + ",".join(server.address for server in self.servers)

    def start(self) -> Self:
        """Return once every node says that the cluster works and all replicas follow."""
        for _ in range(self._primaries * (1 + self._replicas_each)):
            server = ServerProcess(binary=self._binary, config=self._config)
            self.servers.append(self._cleanup.enter_context(server))
        self._introduce()
        self._hand_out_slots()
        self._attach_replicas()
        self.wait_until_settled()
        return self

    def slot_of(self, key: str | bytes) -> int:
        return int(self.servers[0].call("CLUSTER", "KEYSLOT", key))

    def owner_of(self, slot: int) -> ServerProcess:
        """The primary that serves the slot now, as the nodes that run tell it."""
        port = _owner_port(self._running()[0], slot)
        return next(server for server in self.servers if server.port == port)

    def start_moving(self, slot: int, to: ServerProcess) -> None:
        """From now on the owner answers ASK for keys of the slot that it does not have."""
        owner = self.owner_of(slot)
        to.call("CLUSTER", "SETSLOT", slot, "IMPORTING", _node_id(owner))
        owner.call("CLUSTER", "SETSLOT", slot, "MIGRATING", _node_id(to))

    def move_keys(self, slot: int, to: ServerProcess, *, at_most: int | None = None) -> int:
        """Carry keys of a slot that is being moved, all or some, and return how many."""
        owner, moved = self.owner_of(slot), 0
        while at_most is None or moved < at_most:
            wanted = _KEYS_AT_ONCE if at_most is None else min(_KEYS_AT_ONCE, at_most - moved)
            keys = owner.call("CLUSTER", "GETKEYSINSLOT", slot, wanted)
            if not keys:
                break
            owner.call("MIGRATE", to.host, to.port, "", 0, 5000, "KEYS", *keys, timeout_s=10.0)
            moved += len(keys)
        return moved

    def finish_moving(self, slot: int, to: ServerProcess) -> None:
        """From now on the former owner answers MOVED. Returns once all nodes agree."""
        former, new_id = self.owner_of(slot), _node_id(to)
        # The new owner first: were the former told before it, both would send the client to each other.
        to.call("CLUSTER", "SETSLOT", slot, "NODE", new_id)
        former.call("CLUSTER", "SETSLOT", slot, "NODE", new_id)
        blocking_until(lambda: self._named_owners(slot) == {to.port}, within_s=_SETTLED_WITHIN_S)

    def move_slot(self, slot: int, to: ServerProcess) -> None:
        """Move a slot with its keys, while clients go on using it."""
        self.start_moving(slot, to)
        self.move_keys(slot, to)
        self.finish_moving(slot, to)

    def wait_until_settled(self, *, within_s: float = _SETTLED_WITHIN_S) -> None:
        """Return once every node that runs says that the cluster works. Right after a kill they still do."""
        blocking_until(self._settled, within_s=within_s)

    def close(self) -> None:
        self._cleanup.close()

    def _introduce(self) -> None:
        first = self.servers[0]
        for number, server in enumerate(self.servers, start=1):
            server.call("CLUSTER", "SET-CONFIG-EPOCH", number)
            if server is not first:
                server.call("CLUSTER", "MEET", first.host, first.port)
        blocking_until(self._everybody_knows_everybody, within_s=_SETTLED_WITHIN_S)

    def _hand_out_slots(self) -> None:
        for index, server in enumerate(self.servers[: self._primaries]):
            slots = range(index * SLOTS // self._primaries, (index + 1) * SLOTS // self._primaries)
            server.call("CLUSTER", "ADDSLOTS", *slots)

    def _attach_replicas(self) -> None:
        for index, replica in enumerate(self.servers[self._primaries :]):
            replica.call("CLUSTER", "REPLICATE", _node_id(self.servers[index % self._primaries]))

    def _everybody_knows_everybody(self) -> bool:
        return all(_knows(server, len(self.servers)) for server in self.servers)

    def _settled(self) -> bool:
        return all(_works(server) and _follows_if_replica(server) for server in self._running())

    def _named_owners(self, slot: int) -> set[int]:
        return {_owner_port(server, slot) for server in self._running()}

    def _running(self) -> list[ServerProcess]:
        return [server for server in self.servers if server.alive]


def _node_id(server: ServerProcess) -> Any:
    return server.call("CLUSTER", "MYID")


def _owner_port(server: ServerProcess, slot: int) -> int:
    for first, last, primary, *_ in server.call("CLUSTER", "SLOTS"):
        if first <= slot <= last:
            return int(primary[1])
    raise LookupError(f"slot {slot} has no owner, says {server.address}")


def _knows(server: ServerProcess, count: int) -> bool:
    lines = bytes(server.call("CLUSTER", "NODES")).splitlines()
    return len(lines) == count and not any(b"handshake" in line for line in lines)


def _works(server: ServerProcess) -> bool:
    return b"cluster_state:ok" in server.call("CLUSTER", "INFO")


def _follows_if_replica(server: ServerProcess) -> bool:
    return server.info("replication").get("master_link_status", "up") == "up"
