"""A primary, its replica and three sentinels on this machine, quick to fail over."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any, Self

from kizuna.errors import Refused
from kizuna.testing.blocks import Block
from kizuna.testing.servers import ServerProcess
from kizuna.testing.waiting import blocking_until

_SENTINELS = 3
_QUORUM = 2
# As by default: nobody is taken for dead unless a test has just killed or paused it.
_CALM_MS = 30_000
# An election that fails on a busy machine is followed by another one after 6 s.
_SETTLED_WITHIN_S = 40.0

# How often sentinels look, ask and announce themselves. By default they learn of each other after 2 s, and of
# a replica's new role after 1 to 10 s. Known to Redis 7 and Valkey; older ones are slower and work as well.
# The ping period stays: five of it is how old the last news of a replica may be when it is to be promoted.
_HURRY = ("INFO-PERIOD", 200, "ASK-PERIOD", 100, "PUBLISH-PERIOD", 100)
# After four of it, a sentinel makes a replica again of what became a primary without its knowledge. The one that has
# promoted it needs up to a second to see that it is done, and to tell the others.
_LEISURE = ("PUBLISH-PERIOD", 2000)


class SentinelSetup(Block):
    """`primary` and `replica` are who the sentinels say they are now, not who was started as what."""

    def __init__(self, *, name: str = "main", down_after_ms: int = 1000, binary: str = "") -> None:
        self.name = name
        self.servers: list[ServerProcess] = []
        self.sentinels: list[ServerProcess] = []
        self._down_after_ms = down_after_ms
        self._binary = binary
        self._cleanup = ExitStack()

    @property
    def url(self) -> str:
        sentinels = ",".join(sentinel.address for sentinel in self.sentinels)
        return f"redis+sentinel://{sentinels}/{self.name}"

    @property
    def primary(self) -> ServerProcess:
        return self._named_by(self.sentinels[0])

    @property
    def replica(self) -> ServerProcess:
        primary = self.primary
        return next(server for server in self.servers if server is not primary)

    def start(self) -> Self:
        """Return once the replica follows, and all sentinels know it and each other."""
        primary = self._add_server({})
        self._add_server({"replicaof": f"{primary.host} {primary.port}"})
        # Sentinels that find the replica attached learn of it with their first look.
        blocking_until(self._replica_follows, within_s=_SETTLED_WITHIN_S)
        for _ in range(_SENTINELS):
            self._add_sentinel(primary)
        self.wait_until_settled()
        return self

    def kill_primary(self) -> ServerProcess:
        """Kill the present primary and return it; it can be started again as a replica."""
        self._despair_after(self._down_after_ms)
        primary = self.primary
        primary.kill()
        return primary

    def pause_primary(self) -> ServerProcess:
        """Let the present primary stand still, with its connections open, and return it; it can be resumed."""
        self._despair_after(self._down_after_ms)
        primary = self.primary
        primary.pause()
        return primary

    def change_roles(self) -> ServerProcess:
        """The failover that an administrator asks for: both live on. Returns the new primary, as after a failover."""
        former, (_, *others) = self.primary, self.sentinels
        for sentinel in others:
            _set_pace(sentinel, *_LEISURE)
        blocking_until(lambda: self._is_replaced(former), within_s=_SETTLED_WITHIN_S, every_s=0.1)
        server = self.wait_for_failover(former)
        for sentinel in others:
            _set_pace(sentinel, *_HURRY)
        return server

    def wait_for_failover(self, former: ServerProcess, *, within_s: float = _SETTLED_WITHIN_S) -> ServerProcess:
        """Return the new primary once every sentinel names it and it takes writes."""

        def promoted() -> ServerProcess | None:
            named = {self._named_by(sentinel) for sentinel in self.sentinels}
            server = named.pop()
            if named or server is former or server.info("replication")["role"] != "master":
                return None
            return server

        server = blocking_until(promoted, within_s=within_s)
        # On a busy machine a server can fall silent for a second, and the next failover would undo this one.
        self._despair_after(_CALM_MS)
        return server

    def heal(self) -> None:
        """Start whatever was killed, and wait until all is as after `start`."""
        for server in [*self.servers, *self.sentinels]:
            if not server.alive:
                server.start()
        self.wait_until_settled()

    def wait_until_settled(self, *, within_s: float = _SETTLED_WITHIN_S) -> None:
        blocking_until(self._settled, within_s=within_s)

    def close(self) -> None:
        self._cleanup.close()

    def _add_server(self, config: dict[str, str | int]) -> ServerProcess:
        common: dict[str, str | int] = {"notify-keyspace-events": "AKE", "repl-ping-replica-period": 1}
        server = ServerProcess(binary=self._binary, config=common | config)
        self.servers.append(self._cleanup.enter_context(server))
        return server

    def _despair_after(self, silence_ms: int) -> None:
        """How long a server may be silent before the sentinels take it for dead."""
        # The last one is slower: three that vote for themselves at once would have to wait for the next election,
        # two cannot split three votes.
        for sentinel, patience_ms in zip(self.sentinels, (silence_ms, silence_ms, silence_ms * 3 // 2), strict=True):
            if sentinel.alive:
                sentinel.call("SENTINEL", "SET", self.name, "down-after-milliseconds", patience_ms)

    def _add_sentinel(self, primary: ServerProcess) -> None:
        sentinel = ServerProcess(binary=self._binary, sentinel=True)
        self.sentinels.append(self._cleanup.enter_context(sentinel))
        with sentinel.connect() as conversation:
            conversation.call("SENTINEL", "MONITOR", self.name, primary.host, primary.port, _QUORUM)
            conversation.call("SENTINEL", "SET", self.name, "failover-timeout", 3000)
        _set_pace(sentinel, *_HURRY)

    def _is_replaced(self, former: ServerProcess) -> bool:
        """Ask for it again unless it goes on: on a busy machine a failover is given up now and then."""
        view = _pairs(self.sentinels[0].call("SENTINEL", "MASTER", self.name))
        if view["port"] != str(former.port):
            return True
        if "failover_in_progress" not in view["flags"]:
            self._ask_for_failover()
        return False

    def _ask_for_failover(self) -> None:
        try:
            self.sentinels[0].call("SENTINEL", "FAILOVER", self.name)
        except Refused as refusal:
            # The replica was silent for a moment; or somebody has begun since we looked.
            if refusal.code not in ("NOGOODSLAVE", "INPROG"):
                raise

    def _replica_follows(self) -> bool:
        return self.servers[1].info("replication").get("master_link_status") == "up"

    def _settled(self) -> bool:
        return all(self._sees_everybody(sentinel) for sentinel in self.sentinels)

    def _sees_everybody(self, sentinel: ServerProcess) -> bool:
        view = _pairs(sentinel.call("SENTINEL", "MASTER", self.name))
        replicas = [_pairs(replica) for replica in sentinel.call("SENTINEL", "REPLICAS", self.name)]
        return (
            view["flags"] == "master"
            and view["num-other-sentinels"] == str(len(self.sentinels) - 1)
            and [replica["flags"] for replica in replicas] == ["slave"]
            and replicas[0]["master-link-status"] == "ok"
        )

    def _named_by(self, sentinel: ServerProcess) -> ServerProcess:
        _, port = sentinel.call("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self.name)
        return next(server for server in self.servers if server.port == int(port))


def _set_pace(sentinel: ServerProcess, *periods: str | int) -> None:
    try:
        sentinel.call("SENTINEL", "DEBUG", *periods)
    except Refused as refusal:
        if "Unknown" not in refusal.what and "unknown" not in refusal.what:
            raise


def _pairs(reply: list[Any]) -> dict[str, str]:
    return {reply[i].decode(): reply[i + 1].decode() for i in range(0, len(reply), 2)}
