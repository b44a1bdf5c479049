"""Namespaces and keys, which may be any text, as ids of contexts and items, which may not.

    ("users", "ana.b@x")           langgraph/users/ana.b%40x
    the same, key "likes: tea"     langgraph/users/ana.b%40x=likes%3A%20tea

Letters and digits of any alphabet and `-._~` stay as they are; all else becomes its bytes in UTF-8, each as `%XX`. So
`/` and `=` are ours, and no two names meet. What is longer than a part of a key may be is folded: a `:` stands after
every 256 characters, and says nothing.
"""

from __future__ import annotations

import re

from kizuna.store.keys import LONGEST_NAME

TYPE = "langgraph"
"""The type of all items of the store, and of the contexts of its outermost namespaces."""

_PLAIN = frozenset("-._~")
_ESCAPED = re.compile(rb"%([0-9A-F]{2})")
_BETWEEN, _BEFORE_KEY, _FOLD = "/", "=", ":"


def context_of(namespace: tuple[str, ...]) -> str:
    return _folded(_path(namespace))


def item_of(namespace: tuple[str, ...], key: str) -> str:
    return _folded(f"{_path(namespace)}{_BEFORE_KEY}{_escaped(key)}")


def type_of(namespace: tuple[str, ...]) -> str:
    """Of the context of a namespace: the one above it, so that all below one can be listed."""
    return context_of(namespace[:-1])


def namespace_of(context: str) -> tuple[str, ...]:
    """The inverse of `context_of`."""
    _, *labels = context.replace(_FOLD, "").split(_BETWEEN)
    return tuple(map(_plain, labels))


def key_of(item: str) -> str:
    """The inverse of `item_of`, of the key."""
    return _plain(item.replace(_FOLD, "").rpartition(_BEFORE_KEY)[2])


def _path(namespace: tuple[str, ...]) -> str:
    return _BETWEEN.join((TYPE, *map(_escaped, namespace)))


def _escaped(text: str) -> str:
    return "".join(c if c.isalnum() or c in _PLAIN else _hexadecimal(c) for c in text)


def _hexadecimal(character: str) -> str:
    return "".join(f"%{byte:02X}" for byte in character.encode(errors="surrogatepass"))


def _plain(text: str) -> str:
    raw = _ESCAPED.sub(lambda found: bytes.fromhex(found[1].decode()), text.encode())
    return raw.decode(errors="surrogatepass")


def _folded(text: str) -> str:
    return _FOLD.join(text[start : start + LONGEST_NAME] for start in range(0, len(text), LONGEST_NAME))
