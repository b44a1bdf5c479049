"""The key families of memory, below the root `harca` unless set otherwise.

The names, types and members of the first two groups, and the channels, are a protocol that others speak as well.
What we need beside it has keys of its own, that nobody else has to know.
"""

from __future__ import annotations

from kizuna.store.keys import Key

# items

ITEM = Key("memory:short:item:<item...>", "hash", "expires", "an item: what is remembered, and about it")
ITEMS_OF_TYPE = Key("memory:short:idx:type:<type...>", "set", "removed", "the items of a type")
ITEMS_OF_CONTEXT = Key("memory:short:idx:context:<context...>", "set", "removed", "the items of a context")
ITEMS_OF_PRIORITY = Key(
    "memory:short:idx:priority:<priority>", "zset", "removed", "the items of a priority, and since when, in ms"
)
ITEMS_EXPIRY = Key("memory:short:idx:expiry", "zset", "removed", "all items, and when they end, in ms")

# contexts

CONTEXT = Key("memory:context:<context...>", "hash", "expires", "a context: its name, type and life")
CONTEXTS_OF_TYPE = Key("memory:ctx:idx:type:<type...>", "set", "removed", "the contexts of a type")
CONTEXTS_ACTIVE = Key("memory:ctx:idx:active", "set", "removed", "the contexts that live longer by being used")
CONTEXTS_EXPIRY = Key("memory:ctx:idx:expiry", "zset", "removed", "all contexts, and when they end, in ms")

# what happened

ITEM_EVENT = Key("events:memory:item:<event>", "channel", "never", "tells of items: created, updated, deleted, expired")
CONTEXT_EVENT = Key("events:memory:ctx:<event>", "channel", "never", "the same of contexts")
ALL_EVENTS = f"{ITEM_EVENT.beginning.removesuffix('item:')}*"
"""Behind a root: both, as one pattern, which is what everybody listens to."""
FEED = Key("memory:feed", "stream", "never", "the last events of items and contexts, for those who must not miss any")

# what makes the above exact

ITEM_PLACES = Key("memory:short:places", "hash", "removed", "where each item stands in the indexes")
TYPE_ORDER = Key("memory:short:order:type:<type...>", "zset", "removed", "the items of a type, and since when, in ms")
CONTEXT_ORDER = Key(
    "memory:short:order:context:<context...>", "zset", "removed", "the items of a context, and since when, in ms"
)
ODD_PRIORITIES = Key("memory:short:odd-priorities", "set", "never", "priorities beside 1 to 10 that others have used")
CONTEXT_PLACES = Key("memory:ctx:places", "hash", "removed", "where each context stands in the indexes")
CONTEXTS_ENDING = Key(
    "memory:ctx:ending", "hash", "removed", "contexts that have ended, while their items are still being ended"
)

RELAYED = Key("memory:relayed", "string", "never", "up to which event the other shards were told what has changed here")

# what ends items before their time

DEPENDENTS = Key("memory:short:dependents:<name...>", "set", "removed", "the items that end when this changes")
CHANGED = Key("memory:short:changed", "set", "removed", "what has changed, while its dependents are still being ended")
GENERATIONS = Key("memory:generations", "hash", "never", "how often each generation was raised")
ITEMS_OF_GENERATION = Key(
    "memory:short:generation:<generation...>", "zset", "removed", "the items of a generation, and of which"
)
GENERATIONS_RAISED = Key(
    "memory:generations-raised", "set", "removed", "raised generations, while older items are still being ended"
)
RELIEF = Key("memory:relief", "string", "expires", "who makes room on a server that is nearly full")
