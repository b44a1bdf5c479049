"""Scripts: Lua files whose header is their signature.

    -- Take the lock if it is free.
    --
    -- KEYS holder    token of the current holder
    -- ARGV token     who wants the lock
    -- ARGV lease_ms  how long the lease lasts

    take_lock = Script.load(__package__, "take_lock")
    await take_lock(store, holder=key, token=token, lease_ms=10_000)

The declared names are locals for the author of the Lua code, and the only names that a call may have. A
script for batches also declares what each row has, `-- ROW KEYS job  …` and `-- ROW ARGV payload  …`: in Lua,
`rows` is their number, `row(i)` returns the keys and then the arguments of one, and each is due one result.

What several scripts do alike is in parts, `lua/parts/<name>.lua`, that a script names as `-- USES ending  …`: they
stand before it, in that order. A script with many keys below one root declares `-- ARGV root  …` and is loaded with
`families`: then each that it uses is a local as well. FEED, whose key has no places, is `feed`; ITEM is `item_of` and
ITEMS_OF_TYPE `items_of_type`, what their keys begin with.
"""

from __future__ import annotations

import hashlib
import keyword
import re
from importlib import resources
from typing import TYPE_CHECKING, Any, NamedTuple

from hiredis import ReplyError

from kizuna.errors import Refused, ScriptFailed, ScriptMismatch
from kizuna.store.begun import Begun
from kizuna.store.replies import translate

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable, Mapping, Sequence

    from kizuna.errors import StoreError
    from kizuna.store.batching import Sender
    from kizuna.store.client import Store
    from kizuna.store.keys import Key
    from kizuna.store.wire import Argument, Command

# Rows of one call: a script holds up the whole server while it runs, and this is some milliseconds of its time.
MOST_ROWS = 1_000

_SENDABLE = frozenset({str, bytes, int, float})

_DECLARES = re.compile(r"--\s+(?:ROW|KEYS|ARGV|USES)\b")
_DECLARATION = re.compile(
    r"--\s+(?:(?P<row>ROW\s+)?(?P<kind>KEYS|ARGV)|(?P<uses>USES))\s+(?P<name>[A-Za-z]\w*)\s+\S.*", re.ASCII
)
_LUA_WORDS = """
    and break do else elseif end false for function goto if in local nil not or
    repeat return then true until while
    ARGV KEYS row rows redis server bit cjson cmsgpack math os string struct table
    assert error ipairs next pairs pcall select tonumber tostring type unpack xpcall
"""
_TAKEN = frozenset({*_LUA_WORDS.split(), *keyword.kwlist, "timeout_s"})

# Where the server says that an error was raised: user_script:12, or before Redis 7 also "user_script: 12".
_PLACE = r"@?(?:user_script|f_[0-9a-f]{40}): ?(\d+)"
_BEFORE_THE_MESSAGE = re.compile(rf"(?:ERR )?(?:Error \w+ script \([^)]*\): )?(?:{_PLACE}: )*-?")
_AFTER_THE_MESSAGE = re.compile(rf" script: (?:\w+, )?on {_PLACE}\.$")


class Signature(NamedTuple):
    """The declared names, in their order."""

    keys: tuple[str, ...]
    args: tuple[str, ...]
    row_keys: tuple[str, ...]
    row_args: tuple[str, ...]
    uses: tuple[str, ...] = ()
    """Parts that stand before the script."""


class Part(NamedTuple):
    name: str
    text: str


class Script:
    """`source` is what the server gets: a prelude that binds the declared names, on the line on which the first part
    or the script begins, the parts, and the text of the file. `sha` is how the server knows it."""

    def __init__(
        self,
        name: str,
        text: str,
        parts: Sequence[Part] = (),
        families: Mapping[str, Key] | None = None,
        most_rows: int = MOST_ROWS,
    ) -> None:
        self.name, self.most_rows = name, most_rows
        self.signature = _read_header(name, text)
        self._files = [*parts, Part(name, text)]
        body = "".join(_with_line_end(part.text) for part in self._files)
        self.source = _prelude(self.signature) + _bind_families(families or {}, body) + body
        self.sha = hashlib.sha1(self.source.encode(), usedforsecurity=False).hexdigest()
        self.has_rows = bool(self.signature.row_keys or self.signature.row_args)
        self._fixed_order = self.signature.keys + self.signature.args
        self._fixed_names = frozenset(self._fixed_order)
        self._row_names = frozenset(self.signature.row_keys + self.signature.row_args)
        self._all_names = self._fixed_names | self._row_names

    @classmethod
    def load(
        cls, package: str, name: str, families: Mapping[str, Key] | None = None, most_rows: int = MOST_ROWS
    ) -> Script:
        """The script of this name in the folder `lua` of the package, with the parts that it uses. `most_rows` of those
        that are awaited in one turn share a call."""
        folder = resources.files(package) / "lua"
        text = (folder / f"{name}.lua").read_text("utf-8")
        uses = _read_header(name, text).uses
        parts = [Part(used, (folder / "parts" / f"{used}.lua").read_text("utf-8")) for used in uses]
        return cls(name, text, parts, families, most_rows)

    async def __call__(self, store: Sender, /, *, timeout_s: float | None = None, **names: Argument) -> Any:
        """Run it. ScriptMismatch, before anything is sent, if the names are not those of the header."""
        return await _finish(self, store.begin_script(self, self.command(names), store.deadline(timeout_s)))

    async def rows(
        self,
        store: Sender,
        rows: Sequence[Mapping[str, Argument]],
        /,
        *,
        timeout_s: float | None = None,
        **fixed: Argument,
    ) -> list[Any]:
        """Run it once for all rows, in their order. On a cluster, all their keys must lie in one slot.

        A row for which the script returned an error has that error in its place; `row` raises it.
        """
        return await self.begin_rows(store, rows, fixed, timeout_s) if rows else []

    def begin_rows(
        self,
        store: Sender,
        rows: Sequence[Mapping[str, Argument]],
        fixed: Mapping[str, Argument],
        timeout_s: float | None = None,
    ) -> Awaitable[list[Any]]:
        """`rows` for those who have some to do meanwhile: the call is in the line now, awaited or not."""
        reply = store.begin_script(self, self.command(fixed, rows), store.deadline(timeout_s))
        return Begun(lambda: self._results_of(reply, len(rows)))

    async def _results_of(self, reply: Awaitable[Any], rows: int) -> list[Any]:
        return self.results(await _finish(self, reply), rows)

    async def row(self, store: Store, /, *, timeout_s: float | None = None, **names: Argument) -> Any:
        """Run it for one row, in one call with the other rows that are awaited in this turn of the loop."""
        # Everything about this row is checked before it joins the others: it must not fail theirs.
        if not self.has_rows or names.keys() != self._all_names:
            raise self._mismatch(names, self._all_names)
        if not _SENDABLE.issuperset(map(type, names.values())):
            self._refuse_unsendable([names])
        fixed = {name: names.pop(name) for name in self._fixed_names}
        return await store.batch_row(self, fixed, names, timeout_s=timeout_s)

    def command(self, fixed: Mapping[str, Argument], rows: Sequence[Mapping[str, Argument]] = ()) -> Command:
        """The EVALSHA for this call. ScriptMismatch if names or values are not what the header declares."""
        if self.has_rows != bool(rows) or fixed.keys() != self._fixed_names:
            raise self._mismatch(fixed, self._fixed_names)
        command = self._with_rows(fixed, rows) if rows else self._without_rows(fixed)
        if not _SENDABLE.issuperset(map(type, command)):
            self._refuse_unsendable([fixed, *rows])
        return command

    def _without_rows(self, fixed: Mapping[str, Argument]) -> Command:
        return ("EVALSHA", self.sha, len(self.signature.keys), *map(fixed.__getitem__, self._fixed_order))

    def _with_rows(self, fixed: Mapping[str, Argument], rows: Sequence[Mapping[str, Argument]]) -> Command:
        for row in rows:
            if row.keys() != self._row_names:
                raise self._mismatch(row, self._row_names)
        keys = [fixed[name] for name in self.signature.keys]
        args = [fixed[name] for name in self.signature.args]
        keys += [row[name] for row in rows for name in self.signature.row_keys]
        args += [row[name] for row in rows for name in self.signature.row_args]
        return ("EVALSHA", self.sha, len(keys), *keys, *args)

    def with_text(self, command: Command) -> Command:
        """The same call for a server that does not know the script."""
        return ("EVAL", self.source, *command[2:])

    def keys_of(self, fixed: Mapping[str, Argument], row: Mapping[str, Argument]) -> Command:
        """All keys that one row touches."""
        return *[fixed[name] for name in self.signature.keys], *[row[name] for name in self.signature.row_keys]

    def results(self, returned: Any, rows: int) -> list[Any]:
        """What it returned for each row; of a row for which it returned an error, that error. ScriptMismatch if they
        are not as many."""
        if isinstance(returned, list) and len(returned) == rows:
            return [_own_error(self, result) if type(result) is ReplyError else result for result in returned]
        what = f"{len(returned)} results" if isinstance(returned, list) else f"{returned!r}"
        raise ScriptMismatch(self.name, f"it returned {what} for {rows} rows (a nil ends a list: return false)")

    def failure(self, refusal: Refused) -> StoreError:
        """What the server said; with file and line, if it was the script that failed."""
        place = re.search(_PLACE, refusal.what)
        if place is None or type(refusal) is not Refused:
            return refusal
        message = _AFTER_THE_MESSAGE.sub("", _BEFORE_THE_MESSAGE.sub("", refusal.what, count=1))
        # Before Redis 7 the code of a command's error stands behind the place, where nobody has looked yet.
        meant = translate(message, refusal.server)
        if type(meant) is not Refused:
            return meant
        hint = "look at that line; what the script wrote before it stays written"
        return ScriptFailed(f"{self._file_and_line(int(place[1]))}: {message}", refusal.server, hint)

    def _file_and_line(self, line: int) -> str:
        for part in self._files[:-1]:
            length = _with_line_end(part.text).count("\n")
            if line <= length:
                return f"parts/{part.name}.lua:{line}"
            line -= length
        return f"{self.name}.lua:{line}"

    def _mismatch(self, given: Mapping[str, Argument], declared: frozenset[str]) -> ScriptMismatch:
        from difflib import get_close_matches

        missing, unknown = sorted(declared - given.keys()), sorted(given.keys() - declared)
        if unknown:
            nearest = get_close_matches(unknown[0], missing or declared, n=1, cutoff=0.5)
            right = f"did you mean {nearest[0]!r}?" if nearest else f"it has {', '.join(sorted(declared)) or 'none'}"
            return ScriptMismatch(self.name, f"it declares no {unknown[0]!r}; {right}")
        if missing:
            return ScriptMismatch(self.name, f"{', '.join(missing)} missing")
        return ScriptMismatch(self.name, "it runs on rows: use row() or rows()" if self.has_rows else "it has no rows")

    def _refuse_unsendable(self, groups: Iterable[Mapping[str, Argument]]) -> None:
        for group in groups:
            for name, value in group.items():
                if isinstance(value, bool) or not isinstance(value, (str, bytes, int, float)):
                    problem = f"{name} is {value!r}; only str, bytes, int and float can be sent"
                    raise ScriptMismatch(self.name, problem)


async def _finish(script: Script, reply: Awaitable[Any]) -> Any:
    try:
        return await reply
    except Refused as refusal:
        failure = script.failure(refusal)
        if failure is refusal:
            raise
        raise failure from refusal


def _own_error(script: Script, error: ReplyError) -> StoreError:
    refusal = translate(str(error), "the server")
    return script.failure(refusal) if isinstance(refusal, Refused) else refusal


def _read_header(script: str, text: str) -> Signature:
    declared: dict[str, str] = {}
    for number, line in enumerate(_header(script, text), 1):
        if not _DECLARES.match(line):
            continue
        found = _DECLARATION.fullmatch(line.rstrip())
        if not found:
            raise ScriptMismatch(
                script, f"line {number} should be [ROW] KEYS or ARGV, or USES, a name, and its meaning"
            )
        if found["name"] in _TAKEN or found["name"] in declared:
            raise ScriptMismatch(script, f"line {number} declares {found['name']!r}, which is taken")
        declared[found["name"]] = found["uses"] or ("ROW " if found["row"] else "") + found["kind"]

    def names(kind: str) -> tuple[str, ...]:
        return tuple(name for name in declared if declared[name] == kind)

    return Signature(names("KEYS"), names("ARGV"), names("ROW KEYS"), names("ROW ARGV"), names("USES"))


def _header(script: str, text: str) -> list[str]:
    lines = text.splitlines()
    length = next((number for number, line in enumerate(lines) if not line.startswith("--")), len(lines))
    if length == 0:
        raise ScriptMismatch(script, "its first line should be a comment that says what it does")
    return lines[:length]


def _prelude(signature: Signature) -> str:
    """Lua that binds the names. KEYS and ARGV hold what is fixed first, and then row after row."""
    keys, args, row_keys, row_args, _ = signature
    return _bind(keys, "KEYS") + _bind(args, "ARGV") + (_bind_rows(signature) if row_keys or row_args else "")


def _bind_families(families: Mapping[str, Key], body: str) -> str:
    """Those that the body mentions: each costs a moment at every run."""
    used = frozenset(re.findall(r"\w+", body))
    named = ((_name_in_lua(name, key), key) for name, key in families.items())
    return "".join(f"local {name}={_beginning_in_lua(key)} " for name, key in named if name in used)


def _beginning_in_lua(key: Key) -> str:
    before = f"'{key.before_root}'.." if key.before_root else ""
    return f"{before}root..'{key.beginning}'"


def _name_in_lua(name: str, key: Key) -> str:
    return name.lower() if not key.names or "_OF_" in name else f"{name.lower()}_of"


def _with_line_end(text: str) -> str:
    return text if text.endswith("\n") else f"{text}\n"


def _bind(names: Sequence[str], table: str) -> str:
    values = ",".join(f"{table}[{number}]" for number, _ in enumerate(names, 1))
    return f"local {','.join(names)}={values} " if names else ""


def _bind_rows(signature: Signature) -> str:
    keys, args, row_keys, row_args, _ = signature
    table, fixed, columns = ("ARGV", args, row_args) if row_args else ("KEYS", keys, row_keys)
    values = [f"KEYS[k+{number}]" for number, _ in enumerate(row_keys, 1)]
    values += [f"ARGV[a+{number}]" for number, _ in enumerate(row_args, 1)]
    return (
        f"local rows=(#{table}-{len(fixed)})/{len(columns)} local function row(i) "
        f"local k,a={len(keys)}+(i-1)*{len(row_keys)},{len(args)}+(i-1)*{len(row_args)} "
        f"return {','.join(values)} end "
    )
