"""Who writes to the server what the specification says, with plain commands and none of our code."""

from __future__ import annotations

from typing import Any

from tests.memory.exactness import read_below

from kizuna.testing.resp import Conversation

Value = str | int | float


def as_sent(value: Value | bytes) -> Value | bytes:
    """Text may hold bytes that are none, as surrogates."""
    return value.encode(errors="surrogateescape") if isinstance(value, str) else value


class Outsider:
    """Writes what the specification says, with plain commands."""

    def __init__(self, conversation: Conversation, root: str) -> None:
        self.root = root
        self._conversation = conversation

    def call(self, verb: str, name: str, *rest: Value | bytes) -> Any:
        return self._conversation.call(verb, as_sent(f"{self.root}:{name}"), *map(as_sent, rest))

    def now_ms(self) -> int:
        seconds, micros = self._conversation.call("TIME")
        return int(seconds) * 1000 + int(micros) // 1000

    def create(self, id_: str, *, ttl_s: float = 900, indexed: bool = True, **said: Value) -> dict[str, Value]:
        """An item with all its fields, but for what is said otherwise; returns them."""
        now = self.now_ms()
        ends = now + round(ttl_s * 1000)
        fields: dict[str, Value] = {"id": id_, "type": "note", "content": '{"from":"outside"}', "contextId": "global"}
        fields |= {"priority": 5, "createdAt": now, "expiresAt": ends, "metadata": "{}", **said}
        self.write(id_, fields)
        if indexed:
            self.call("PEXPIREAT", f"memory:short:item:{id_}", ends)
            self.call("SADD", f"memory:short:idx:type:{fields['type']}", id_)
            self.call("SADD", f"memory:short:idx:context:{fields['contextId']}", id_)
            self.call("ZADD", f"memory:short:idx:priority:{fields['priority']}", now, id_)
            self.call("ZADD", "memory:short:idx:expiry", ends, id_)
        return fields

    def write(self, id_: str, fields: dict[str, Value]) -> None:
        self.call("HSET", f"memory:short:item:{id_}", *(part for pair in fields.items() for part in pair))

    def create_context(self, id_: str, *, ttl_s: float = 900, **said: Value) -> None:
        now = self.now_ms()
        ends = now + round(ttl_s * 1000)
        fields: dict[str, Value] = {"id": id_, "name": "Talk", "type": "chat", "createdAt": now, "updatedAt": now}
        fields |= {"expiresAt": ends, "metadata": "{}", **said}
        self.call("HSET", f"memory:context:{id_}", *(part for pair in fields.items() for part in pair))
        self.call("PEXPIREAT", f"memory:context:{id_}", ends)
        self.call("SADD", f"memory:ctx:idx:type:{fields['type']}", id_)
        self.call("SADD", "memory:ctx:idx:active", id_)
        self.call("ZADD", "memory:ctx:idx:expiry", ends, id_)

    def delete(self, id_: str) -> None:
        """As the specification says: what it reads there is where it takes it out."""
        names = (b"type", b"contextId", b"priority")
        type_, context, priority = (self.call("HGET", f"memory:short:item:{id_}", name).decode() for name in names)
        self.call("SREM", f"memory:short:idx:type:{type_}", id_)
        self.call("SREM", f"memory:short:idx:context:{context}", id_)
        self.call("ZREM", f"memory:short:idx:priority:{priority}", id_)
        self.call("ZREM", "memory:short:idx:expiry", id_)
        self.call("DEL", f"memory:short:item:{id_}")

    def everything(self) -> dict[str, tuple[bytes, Any]]:
        """All that is kept below the root, but for times to live."""
        found = read_below(self._conversation, self.root)
        return {name.decode(): (one.kind, one.value) for name, one in found.items()}
