"""The keys of units: `muf/[unit]/[status]/[id]`, the same four levels for all."""

from __future__ import annotations

from kizuna.store.keys import Key

REQUEST = Key(
    "<unit>/req/<id>",
    "string",
    "expires",
    "what a unit asks of others; `<name>.` before the id says of whom",
    joined_by="/",
)
RESPONSE = Key("<unit>/res/<id>", "string", "expires", "the reply to the unit's request of this id", joined_by="/")
ERROR = Key("<unit>/err/<id>", "string", "expires", "why the unit's request of this id failed", joined_by="/")
KEEP = Key(
    "<unit>/keep/<id>", "string", "expires", "state that the unit shares, its claims and its presence", joined_by="/"
)
