"""Time that moves: only the server's clock counts, and nobody can set it; so all that is kept below a root is moved
back instead, by one script. To everybody who looks, that is the same as having slept."""

from __future__ import annotations

from kizuna.memory.keys import (
    CONTEXT,
    CONTEXT_ORDER,
    CONTEXTS_EXPIRY,
    ITEM,
    ITEMS_EXPIRY,
    ITEMS_OF_PRIORITY,
    TYPE_ORDER,
)
from kizuna.store.client import Store

_HOLD_TIMES_IN_FIELDS = (ITEM, CONTEXT)
_SCORED_BY_TIME = (ITEMS_EXPIRY, ITEMS_OF_PRIORITY, TYPE_ORDER, CONTEXT_ORDER, CONTEXTS_EXPIRY)

_MOVE_BACK = """
local by = tonumber(ARGV[1])
for i, key in ipairs(KEYS) do
  local what = ARGV[i + 1]
  if what == "fields" then
    for _, field in ipairs({"createdAt", "updatedAt", "expiresAt"}) do
      if redis.call("HEXISTS", key, field) == 1 then redis.call("HINCRBY", key, field, -by) end
    end
  elseif what == "scores" then
    for _, member in ipairs(redis.call("ZRANGE", key, 0, -1)) do redis.call("ZINCRBY", key, -by, member) end
  end
  local ends_at = redis.call("PEXPIRETIME", key)
  if ends_at > 0 then redis.call("PEXPIREAT", key, string.format("%.0f", ends_at - by)) end
end
return #KEYS
"""


async def move_time(store: Store, root: str, seconds: float) -> None:
    """Everything below the root is this much older, and ends this much sooner. While nobody else writes there.

    Events stay where they are: the order of a stream cannot be moved, and nothing ends by it.
    """
    keys = await store.call("KEYS", f"{root}:*")
    roles = [_what_holds_time(root, key) for key in keys]
    await store.call("EVAL", _MOVE_BACK, len(keys), *keys, round(seconds * 1000), *roles)


def _what_holds_time(root: str, key: bytes) -> str:
    if any(family.parse(root, key) is not None for family in _HOLD_TIMES_IN_FIELDS):
        return "fields"
    if any(family.parse(root, key) is not None for family in _SCORED_BY_TIME):
        return "scores"
    return ""
