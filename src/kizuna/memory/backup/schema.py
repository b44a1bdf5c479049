"""The tables of the copy. No I/O here.

items      what is remembered, and for those that have ended, that they have: so nothing older brings them back
contexts   the same of contexts
journal    what was written while the server was away, in the order in which it has to happen there
conflicts  what of that could not happen
spilled    items that had to make room on the server
facts      what is known about the copy itself
"""

from __future__ import annotations

# "kizm", in the header of the file: it is ours, and a memory.
APPLICATION = 0x6B697A6D
LAYOUT = 1

_ITEM = """
    id TEXT PRIMARY KEY NOT NULL,
    type TEXT NOT NULL,
    context TEXT NOT NULL,
    priority INTEGER NOT NULL,
    content BLOB NOT NULL,
    metadata BLOB NOT NULL,
    version INTEGER NOT NULL,
    created_ms INTEGER NOT NULL,
    updated_ms INTEGER NOT NULL,
    expires_ms INTEGER NOT NULL,
    ttl_ms INTEGER NOT NULL,
    more BLOB NOT NULL
"""

# What was journalled, and later perhaps could not happen.
_ENTRY = """
    what TEXT NOT NULL,
    id TEXT NOT NULL,
    op TEXT NOT NULL,
    base_version INTEGER NOT NULL,
    base_created_ms INTEGER,
    expires_ms INTEGER NOT NULL,
    at_ms INTEGER NOT NULL,
    not_before_ms INTEGER NOT NULL,
    body BLOB NOT NULL
"""

TABLES = f"""
CREATE TABLE items ({_ITEM}, ended INTEGER NOT NULL DEFAULT 0, seen INTEGER NOT NULL DEFAULT 0);
CREATE INDEX items_in_order ON items (created_ms, id) WHERE NOT ended;
CREATE INDEX items_of_context ON items (context, created_ms, id) WHERE NOT ended;
CREATE INDEX items_of_type ON items (type, created_ms, id) WHERE NOT ended;
CREATE INDEX items_by_end ON items (expires_ms);
CREATE TABLE contexts (
    id TEXT PRIMARY KEY NOT NULL,
    name TEXT NOT NULL,
    type TEXT NOT NULL,
    metadata BLOB NOT NULL,
    version INTEGER NOT NULL,
    created_ms INTEGER NOT NULL,
    updated_ms INTEGER NOT NULL,
    expires_ms INTEGER NOT NULL,
    ttl_ms INTEGER NOT NULL,
    at_end TEXT NOT NULL,
    is_active INTEGER NOT NULL,
    ended INTEGER NOT NULL DEFAULT 0,
    seen INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX contexts_by_end ON contexts (expires_ms);
CREATE TABLE journal (number INTEGER PRIMARY KEY AUTOINCREMENT, {_ENTRY});
CREATE INDEX journal_of ON journal (what, id);
CREATE TABLE conflicts (number INTEGER PRIMARY KEY AUTOINCREMENT, {_ENTRY},
    reason TEXT NOT NULL, found_ms INTEGER NOT NULL);
CREATE TABLE spilled ({_ITEM});
CREATE INDEX spilled_by_end ON spilled (expires_ms);
CREATE TABLE facts (name TEXT PRIMARY KEY NOT NULL, value) WITHOUT ROWID;
"""
