"""What callers say, checked, as what keepers are told. No I/O here."""

from __future__ import annotations

import itertools
import os
import secrets
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

from kizuna.errors import CannotSeal, IllegalName, WrongValue
from kizuna.memory.context import AtEnd, NewContext
from kizuna.memory.item import GLOBAL, KINDS, USUAL, USUAL_PRIORITY, Kind, More, NewItem
from kizuna.memory.json_text import encoded
from kizuna.memory.keys import CONTEXT, CONTEXTS_OF_TYPE, DEPENDENTS, ITEM, ITEMS_OF_GENERATION, ITEMS_OF_TYPE
from kizuna.memory.policy import Policy, check_cost, check_importance, check_priority, is_number
from kizuna.memory.query import MOST_PER_PAGE, Query
from kizuna.memory.sealing import refuse_what_looks_sealed
from kizuna.store.lifetimes import lifetime_ms

if TYPE_CHECKING:
    from kizuna.memory.sealing import KeyRing
    from kizuna.settings import Settings
    from kizuna.store.keys import Key

T = TypeVar("T")

_NO_METADATA = b"{}"
_MOST_DEPENDENCIES = 100
_MOST_KNOWN_NAMES = 10_000
# The server can count to that, in ms, without losing one.
_NEVER_S = 1e12


class ItemOptions(TypedDict, total=False):
    """What can be said about an item, and need not."""

    context: str
    """Where it belongs; "global" unless said."""
    priority: int
    """1 to 10; 5 unless said."""
    ttl_s: float | None
    """How long it is to live, within the bounds of its kind."""
    metadata: Mapping[str, Any] | None
    kind: Kind
    """item, result or state."""
    cost_s: float | None
    """What a result cost to calculate: it lives longer."""
    importance: float | None
    """Of a state, from 0 to 1: it lives longer."""
    depends_on: Iterable[str]
    """Names, and ids of other items: it ends when one of them changes."""
    generation: str | None
    """It ends when that is raised."""
    sealed: bool | None
    """Whether the server may see the content; as the settings say unless said."""


class Drafts:
    """Knows the policy, the limits, and how to seal."""

    def __init__(self, settings: Settings, ring: KeyRing | None) -> None:
        self._root = settings.roots.memory
        self._settings = settings.memory
        self.policy = Policy(settings.memory)
        self._ring = ring
        self.may_seal = ring is not None
        # The same few types and contexts again and again: those that were fine are.
        self._known_names: defaultdict[Key, set[str]] = defaultdict(set)

    def item(
        self,
        type: str,  # noqa: A002 - as everywhere
        content: Any,
        *,
        id: str | None = None,  # noqa: A002
        replaces: bool = False,
        context: str = GLOBAL,
        priority: int = USUAL_PRIORITY,
        ttl_s: float | None = None,
        metadata: Mapping[str, Any] | None = None,
        kind: Kind = "item",
        cost_s: float | None = None,
        importance: float | None = None,
        depends_on: Iterable[str] = (),
        generation: str | None = None,
        sealed: bool | None = None,
    ) -> NewItem:
        is_fresh = id is None
        if id is None:
            id = new_id()  # noqa: A001
        else:
            ITEM.build(self._root, item=id)
        self.check_name(ITEMS_OF_TYPE, "type", type)
        self.check_name(CONTEXT, "context", context)
        check_priority(priority)
        more = self._more(kind, cost_s, importance, depends_on, generation)
        if id in more.depends_on:
            raise WrongValue("depends_on", repr(id), "others: it would end by its own changes")
        ttl_ms = self.policy.item_ms(kind, priority, cost_s, importance) if ttl_s is None else lifetime_ms(ttl_s)
        return NewItem(
            id=id,
            type=type,
            context=context,
            priority=priority,
            content=self.content(id, content, sealed),
            metadata=self.metadata(metadata),
            ttl_ms=ttl_ms,
            more=more,
            token=new_token(),
            replaces=replaces,
            is_fresh=is_fresh,
        )

    def item_of(self, arguments: Mapping[str, Any]) -> NewItem:
        """One of many: the arguments of `create`, by name."""
        try:
            return self.item(**arguments)
        except TypeError:
            _check_arguments(arguments)
            raise

    def context(
        self,
        name: str,
        type: str,  # noqa: A002
        *,
        id: str | None,  # noqa: A002
        ttl_s: float | None,
        metadata: Mapping[str, Any] | None,
        at_end: AtEnd,
        active: bool,
    ) -> NewContext:
        id = new_id() if id is None else self.context_id(id)  # noqa: A001
        self.check_name(CONTEXTS_OF_TYPE, "type", type)
        check_at_end(at_end)
        check_text("name", name)
        check_flag("active", active)
        return NewContext(
            id=id,
            name=name,
            type=type,
            metadata=self.metadata(metadata),
            ttl_ms=self.policy.usual_context_ms if ttl_s is None else lifetime_ms(ttl_s),
            at_end=at_end,
            is_active=active,
            token=new_token(),
        )

    def content(self, item_id: str, content: Any, sealed: bool | None) -> bytes:
        """As it is stored: JSON, sealed if that is wanted."""
        refuse_what_looks_sealed(content)
        raw = encoded("content", content, self._settings.largest_bytes)
        if not (self._settings.sealed if sealed is None else sealed):
            return raw
        if self._ring is None:
            raise CannotSeal("there are no keys", "set memory.seal_keys_file")
        return self._ring.seal(self._root, item_id, raw)

    def metadata(self, metadata: Mapping[str, Any] | None) -> bytes:
        if metadata is None or metadata == {}:
            return _NO_METADATA
        if not isinstance(metadata, Mapping):
            raise WrongValue("metadata", f"this {type(metadata).__name__}", "a dictionary")
        return encoded("metadata", metadata, self._settings.largest_bytes)

    def context_id(self, id_: str) -> str:
        """IllegalName for one that no key can have, and for the global context, which needs none."""
        if id_ == GLOBAL:
            raise IllegalName("context", id_, "it is where items are that were given none, and is always there")
        self.check_name(CONTEXT, "context", id_)
        return id_

    def check_name(self, family: Key, place: str, name: str) -> None:
        known = self._known_names[family]
        if not isinstance(name, str) or name not in known:
            family.build(self._root, **{place: name})
            if len(known) < _MOST_KNOWN_NAMES:
                known.add(name)

    def _more(
        self,
        kind: Kind,
        cost_s: float | None,
        importance: float | None,
        depends_on: Iterable[str],
        generation: str | None,
    ) -> More:
        if kind == "item" and cost_s is None and importance is None and not depends_on and generation is None:
            return USUAL
        if kind not in KINDS:
            raise WrongValue("kind", repr(kind), f"one of {', '.join(KINDS)}")
        if cost_s is not None:
            check_cost(cost_s)
        if importance is not None:
            check_importance(importance)
        if generation is not None:
            self.check_name(ITEMS_OF_GENERATION, "generation", generation)
        return More(
            kind=kind,
            depends_on=self._dependencies(depends_on),
            generation=generation,
            cost_s=cost_s,
            importance=importance,
        )

    def _dependencies(self, depends_on: Iterable[str]) -> tuple[str, ...]:
        given = tuple(checked_many("depends_on", depends_on, "names"))
        for name in given:
            self.check_name(DEPENDENTS, "name", name)
        names = tuple(dict.fromkeys(given))
        if len(names) > _MOST_DEPENDENCIES:
            raise WrongValue("depends_on", f"{len(names)} names", f"{_MOST_DEPENDENCIES} at most")
        return names


def _check_arguments(arguments: Mapping[str, Any]) -> None:
    if not isinstance(arguments, Mapping):
        raise WrongValue("an item", f"this {type(arguments).__name__}", "a dictionary with the arguments of `create`")
    known = {"type", "content", "id", *ItemOptions.__annotations__}
    for name in sorted(map(str, arguments.keys() - known)):
        raise WrongValue("an item", f"one with {name!r}", f"no other than {', '.join(sorted(known))}")
    for name in ("type", "content"):
        if name not in arguments:
            raise WrongValue("an item", f"one without {name!r}", "type and content at least")


def query_of(
    *,
    type: str | None,  # noqa: A002
    context: str | None,
    priority: int | tuple[int, int] | None,
    ends_after: float | None,
    ends_before: float | None,
    text: str | None,
    newest_first: bool,
    limit: int,
    cursor: str,
) -> Query:
    check_limit(limit)
    check_moment("ends_after", ends_after)
    check_moment("ends_before", ends_before)
    check_cursor(cursor)
    check_flag("newest_first", newest_first)
    if text is not None and not isinstance(text, str):
        raise WrongValue("text", repr(text), "text that is somewhere in the content")
    return Query(
        type=type,
        context=context,
        priority=None if priority is None else priorities_of(priority),
        ends_after=ends_after,
        ends_before=ends_before,
        text=text,
        newest_first=newest_first,
        limit=limit,
        cursor=cursor,
    )


def priorities_of(priority: int | Sequence[int]) -> tuple[int, int]:
    """The lowest and the highest. WrongValue if that is none, or two the other way round."""
    two = tuple(priority) if isinstance(priority, tuple | list) else (priority, priority)
    if len(two) != 2 or not all(type(one) is int for one in two) or two[0] > two[1]:
        raise WrongValue("priority", repr(priority), "a whole number, or two: the lowest and the highest")
    return two[0], two[1]


def check_limit(limit: int, most: int = MOST_PER_PAGE) -> None:
    if type(limit) is not int or not 1 <= limit <= most:
        raise WrongValue("limit", f"{limit!r}", f"1 to {most}")


def check_moment(what: str, at: float | None) -> None:
    if at is not None and not (is_number(at) and abs(at) < _NEVER_S):
        raise WrongValue(what, repr(at), "seconds since the epoch")


def check_cursor(cursor: str) -> None:
    if not isinstance(cursor, str):
        raise WrongValue("cursor", repr(cursor), "the cursor of a page")


def check_flag(what: str, flag: bool | None) -> None:
    if type(flag) is not bool:
        raise WrongValue(what, repr(flag), "True or False")


def checked_many(what: str, given: Iterable[T], of: str) -> Iterable[T]:
    """WrongValue for one that is taken for many: a text would be its letters. It is not shown, for it may be secret."""
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise WrongValue(what, f"this {type(given).__name__}", f"a list of {of}")
    return given


def new_token() -> str:
    """By this a write is known when it has to be repeated: no other has it, in this process or another."""
    return f"{_TOKENS_OF[os.getpid()]}.{next(_NUMBERS):x}"


class _Prefixes(dict[int, str]):
    """One for each process: a child that was forked has another."""

    def __missing__(self, pid: int) -> str:
        self[pid] = secrets.token_urlsafe(7)
        return self[pid]


_TOKENS_OF = _Prefixes()
_NUMBERS = itertools.count()


def new_id() -> str:
    """A UUID of version 4; made of its text, in a fraction of the time."""
    digits = os.urandom(16).hex()
    variant = "89ab"[int(digits[16], 16) & 3]
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}"


def check_version(version: int | None) -> None:
    if version is not None and (type(version) is not int or version < 0):
        raise WrongValue("expected_version", repr(version), "a version, which is a whole number")


def check_at_end(at_end: str) -> None:
    if at_end not in ("delete", "leave"):
        raise WrongValue("at_end", repr(at_end), "delete or leave")


def check_text(what: str, text: str) -> None:
    if not isinstance(text, str) or not text:
        raise WrongValue(what, repr(text), "some text")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise WrongValue(what, repr(text), f"some text ({error})") from error
