"""Checks that are cheaper than reminders: what every file of the project has agreed on."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from itertools import combinations
from pathlib import Path
from types import MappingProxyType

import pytest

from kizuna.catalogue import COMPONENTS, all_families
from kizuna.store.keys import JoinedBy, Key, Part
from kizuna.store.scripts import Script

REPOSITORY = Path(__file__).parent.parent
PACKAGE = REPOSITORY / "src" / "kizuna"
LUA = sorted([*PACKAGE.rglob("*.lua"), *(REPOSITORY / "tests").rglob("*.lua")])
PARTS = [path for path in LUA if path.parent.name == "parts"]
SCRIPTS = [path for path in LUA if path not in PARTS]

# Each line may import from the lines below it, and nothing from its own line but itself.
LAYERS = [
    "__init__ __main__",
    "cli console testing",
    "app",
    "survey",
    "catalogue",
    "units grid match memory",
    "coordination",
    "store",
    "probes",
    "settings service clock loop metrics http listening asgi codecs",
    "configuration interruption",
    "sections",
    "errors _version",
]
DEPTH = {place: depth for depth, line in enumerate(LAYERS) for place in line.split()}


# imports


def test_imports_point_down_or_stay_at_home() -> None:
    modules = {path.relative_to(PACKAGE): path.read_text() for path in PACKAGE.rglob("*.py")}
    wrong = {str(path): reaching_up(path.with_suffix("").parts, source) for path, source in modules.items()}

    assert {path: places for path, places in wrong.items() if places} == {}


def reaching_up(module: tuple[str, ...], source: str) -> list[str]:
    """The imports that a module must not have: `module` is its path in the package, ("store", "keys") say."""
    here = module[0]
    assert here in DEPTH, f"{here} has no place in LAYERS yet"
    imported = {place for node in ast.walk(ast.parse(source)) for place in imported_places(module, node)}
    return sorted(there for there in imported if there != here and DEPTH[here] >= DEPTH[there])


def imported_places(module: tuple[str, ...], node: ast.AST) -> Iterator[str]:
    """The first part, below kizuna, of everything that this statement imports."""
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
        origin = [*("kizuna", *module)[: -node.level]] if node.level else []
        origin += node.module.split(".") if node.module else []
        names = [".".join([*origin, alias.name]) for alias in node.names]
    else:
        return
    for name in names:
        package, _, rest = name.partition(".")
        if package == "kizuna":
            place = rest.partition(".")[0]
            # `import kizuna` and `from kizuna import connect` ask for the public names.
            yield place if place in DEPTH else "__init__"


@pytest.mark.parametrize(
    ("module", "source", "wrong"),
    [
        ("store.keys", "from kizuna.errors import IllegalName", []),
        ("store.keys", "from kizuna.store.wire import Wire\nimport kizuna.store.link", []),
        ("store.keys", "from kizuna.coordination.locks import Locks", ["coordination"]),
        ("store.keys", "def f():\n    from kizuna import app, errors", ["app"]),
        ("store.keys", "from kizuna import connect", ["__init__"]),
        ("store.keys", "import kizuna", ["__init__"]),
        ("store.keys", "from ..app import connect", ["app"]),
        ("store.keys", "from . import wire\nfrom .link import Link\nfrom .. import errors", []),
        ("store.__init__", "from .. import app", ["app"]),
        ("units.paths", "import kizuna.grid.frames", ["grid"]),
        ("errors", "from .settings import Settings", ["settings"]),
        ("testing.fixtures", "from kizuna.app import connect", []),
        ("cli.locks", "from kizuna.testing import eventually", ["testing"]),
        ("clock", "from kizunami import surf", []),
    ],
)
def test_the_import_check_sees_every_way_to_import(module: str, source: str, wrong: list[str]) -> None:
    assert reaching_up(tuple(module.split(".")), source) == wrong


# names


def test_no_file_is_a_drawer_for_everything() -> None:
    drawers = {"utils", "util", "common", "helpers", "base", "misc"}

    assert [path for path in PACKAGE.rglob("*") if path.stem in drawers] == []


@pytest.mark.parametrize("name", ["kizuna", "kizuna.testing"])
def test_every_public_name_is_listed_and_can_be_imported(name: str) -> None:
    package = importlib.import_module(name)
    source = Path(str(package.__file__)).read_text()

    assert public_names(source) <= set(package.__all__)
    assert [listed for listed in package.__all__ if not hasattr(package, listed)] == []
    assert package.__all__ == sorted(set(package.__all__))


def public_names(source: str) -> set[str]:
    """What a package's __init__ takes from its own modules, or defines."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and (node.level or (node.module or "").startswith("kizuna")):
            names |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
    return {name for name in names if not name.startswith("_")}


# documents


def test_the_generated_documents_are_current() -> None:
    tool = REPOSITORY / "tools" / "generate_docs.py"
    checked = subprocess.run([sys.executable, str(tool), "--check"], capture_output=True, text=True, check=False)

    assert checked.returncode == 0, checked.stderr


# keys


def test_every_file_of_keys_is_in_the_catalogue() -> None:
    found = {path.parent.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("keys.py")}
    assert found - {"cli"} == set(COMPONENTS)


def test_every_family_says_what_it_means() -> None:
    for family in all_families():
        assert family.key.meaning, family
        assert "|" not in family.key.pattern + family.key.meaning, f"{family} would break its table in docs/keys.md"


def test_no_two_families_share_a_name() -> None:
    names = [family.name for family in all_families()]

    assert sorted(names) == sorted(set(names)), "`kizuna keys describe NAME` and ACL rules go by the name alone"


def test_no_two_families_share_a_key() -> None:
    for one, other in combinations(all_families(), 2):
        assert not share_a_key(one.key, other.key), f"{one.component}.{one.name}, {other.component}.{other.name}"


def share_a_key(one: Key, other: Key) -> bool:
    """Whether some key, under some root that both have, would be parsed by both."""
    # What follows the root is the joining text in one case, and in the other never begins with it.
    if one.joined_by != other.joined_by or one in other.apart_from or other in one.apart_from:
        return False
    parts, other_parts = parts_of(one), parts_of(other)
    # Beyond this length, two places that take the rest only face each other.
    longest = len(parts) + len(other_parts)
    return any(
        all(meet(*pair, one.joined_by) for pair in zip(ours, theirs, strict=True))
        for length in range(1, longest + 1)
        if (ours := stretched(parts, length)) and (theirs := stretched(other_parts, length))
    )


def parts_of(key: Key) -> tuple[Part, ...]:
    """With what stands before the root, as if that were empty: the root in between would only keep them apart."""
    return Key(key.before_root + key.pattern, "any", "removed", "", joined_by=key.joined_by).parts


def stretched(parts: tuple[Part, ...], length: int) -> tuple[Part, ...]:
    """The parts, with the one that takes the rest written as so many that there are `length`; or none."""
    at = next((number for number, part in enumerate(parts) if part.takes_rest), None)
    more = length - len(parts)
    if at is None or more <= 0:
        return parts if more == 0 else ()
    before, name, after, _ = parts[at]
    middle = [Part("", name)] * (more - 1)
    return (*parts[:at], Part(before, name), *middle, Part("", name, after), *parts[at + 1 :])


def meet(one: Part, other: Part, joined_by: JoinedBy) -> bool:
    """Whether some text fits both parts."""
    if not one.name or not other.name:
        text, part = (one.before, other) if not one.name else (other.before, one)
        return text == part.before if not part.name else is_name(cut(text, part), joined_by)
    # The longer text on each side is what the other one's name would have to begin or end with.
    short, long = sorted([one.before, other.before], key=len)
    if not long.startswith(short) or not is_name(long[len(short) :] or "any", joined_by):
        return False
    short, long = sorted([one.after, other.after], key=len)
    return long.endswith(short) and is_name(long[: len(long) - len(short)] or "any", joined_by)


def cut(text: str, part: Part) -> str:
    """The name that the part would have in this text; empty if it does not fit around any."""
    fits = text.startswith(part.before) and text.endswith(part.after)
    return text[len(part.before) : len(text) - len(part.after)] if fits else ""


def is_name(text: str, joined_by: JoinedBy) -> bool:
    return Key("<name>", "string", "removed", "", joined_by=joined_by).parse("r", f"r{joined_by}{text}") is not None


@pytest.mark.parametrize(
    ("one", "other", "shared"),
    [
        ("lock:<lock>", "lock:<other>", "lock:a"),
        ("lock:<lock>", "<kind>:nightly", "lock:nightly"),
        ("lock:<lock...>", "lock:issue:<number>", "lock:issue:1"),
        ("lock:<lock...>", "lock:<lock>:fence", "lock:a:fence"),
        ("<a>:<rest...>", "<b>:x:<rest...>", "a:x:c"),
        ("<a...>:x:y", "p:q:<b...>", "p:q:x:y"),
        ("{<a...>}:x", "{p:<b>}:x", "{p:q}:x"),
        ("{<a...>}:x", "{<b>:p}:<c>", "{q:p}:x"),
        ("v<a>", "<b>-x", "v-x-x"),
        ("va<a>", "v<b>", "vab"),
        ("issue-<number>", "issue-1", "issue-1"),
    ],
)
def test_families_that_share_a_key_are_found(one: str, other: str, shared: str) -> None:
    families = [Key(pattern, "string", "removed", "") for pattern in (one, other)]

    assert all(family.parse("r", f"r:{shared}") is not None for family in families)
    assert share_a_key(*families)
    assert share_a_key(*reversed(families))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("lock:<lock>", "queue:<priority>"),
        ("lock:<lock>", "lock:<lock>:fence"),
        ("lock:<lock...>", "lock:{<lock>}:fence"),
        ("lock:{<lock>}:holder", "lock:{<lock>}:fence"),
        ("lock:{<lock...>}:holder", "lock:{<lock...>}:fence"),
        ("lock:{<lock...>}:fence", "lock:<lock>:fence"),
        ("{<a>:<b>}", "{<a>}:{<b>}"),
        ("<a>:x", "<a>:y"),
        ("<a...>:x", "<a...>:y"),
        ("v<a>", "w<a>"),
        ("<a>-x", "<a>-y"),
        ("issue-<number>", "issue-"),
        ("<a>:<b>:<c...>", "x:<a>"),
    ],
)
def test_families_that_share_no_key_are_left_alone(one: str, other: str) -> None:
    families = [Key(pattern, "string", "removed", "") for pattern in (one, other)]

    assert not share_a_key(*families)
    assert not share_a_key(*reversed(families))


def test_families_may_stand_apart_or_be_joined_otherwise() -> None:
    index = Key("allTickets", "set", "removed", "", joined_by="")
    ticket = Key("<ticket>", "string", "expires", "", joined_by="")
    ticket_apart = Key("<ticket>", "string", "expires", "", joined_by="", apart_from=(index,))

    assert share_a_key(index, ticket)
    assert not share_a_key(index, ticket_apart)
    assert not share_a_key(ticket, Key("<a>", "string", "removed", ""))
    assert not share_a_key(Key("<a>", "string", "removed", "", joined_by="/"), Key("<a>", "string", "removed", ""))


def test_text_before_the_root_keeps_families_apart_and_may_make_them_meet() -> None:
    lock = Key("lock", "string", "expires", "", joined_by="")
    first = Key("lock", "string", "expires", "", joined_by="", before_root="by:0:")
    second = Key("lock", "string", "expires", "", joined_by="", before_root="by:1:")
    anything = Key("<a>:<b>:<c>", "string", "expires", "", joined_by="")

    assert not share_a_key(lock, first)
    assert not share_a_key(first, second)
    assert share_a_key(first, first)
    assert share_a_key(first, anything)
    assert not share_a_key(lock, anything)


# scripts

_LUA_COMMENT_OR_STRING = re.compile(
    r"""--\[\[.*?\]\] | --[^\n]* | ("(?:\\.|[^"\\])*" | '(?:\\.|[^'\\])*' | \[\[.*?\]\])""", re.DOTALL | re.VERBOSE
)
_FORBIDDEN = re.compile(r"""call\s*\(\s*["'](keys|[shz]?scan|randomkey|flush\w+)["']""", re.IGNORECASE)


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_every_script_keeps_to_its_header(path: Path) -> None:
    text = path.read_text()
    parts = {
        name: (path.parent / "parts" / f"{name}.lua").read_text() for name in Script(path.stem, text).signature.uses
    }

    assert list(complaints(path.stem, text, parts, families_beside(path))) == []


def families_beside(script: Path) -> dict[str, Key]:
    """Those of the component that the script is in."""
    in_package = script.is_relative_to(PACKAGE)
    component = script.relative_to(PACKAGE).parts[0] if in_package else ""
    return {family.name: family.key for family in all_families() if family.component == component}


@pytest.mark.parametrize("path", PARTS, ids=lambda path: path.stem)
def test_every_part_of_scripts_is_used_by_more_than_one_or_by_another_part(path: Path) -> None:
    users = [script for script in path.parents[1].glob("*.lua") if f"-- USES {path.stem} " in script.read_text()]

    assert len(users) > 1, f"{path.name} is used by {[user.name for user in users]}: it could as well be in there"
    assert list(transgressions(path.read_text())) == []


def complaints(
    name: str,
    text: str,
    parts: Mapping[str, str] = MappingProxyType({}),
    families: Mapping[str, Key] = MappingProxyType({}),
) -> Iterator[str]:
    """What a script does that its header does not say, or says and does not do."""
    signature = Script(name, text).signature
    below = words_of(text)
    for part in reversed(signature.uses):
        if not defined_in(parts[part]) & below:
            yield f"{part} is declared and not used"
        below |= words_of(parts[part])
    for declared in signature.keys + signature.args + signature.row_keys + signature.row_args:
        # The root is used by the names of families, which are bound before the text.
        names_families = "root.." in Script(name, text, families=families).source
        is_for_others = (declared == "root" and (signature.uses or names_families)) or says_where(text, declared)
        if declared not in below and not is_for_others:
            yield f"{declared} is declared and not used"
    yield from transgressions(text)
    without_strings = _LUA_COMMENT_OR_STRING.sub("", text)
    row = signature.row_keys + signature.row_args
    for bound in re.findall(r"local\s+([\w\s,]+?)\s*=\s*row\s*\(", without_strings):
        names = tuple(re.split(r"\s*,\s*", bound))
        if any(name not in (declared, "_") for name, declared in zip(names, row, strict=False)):
            yield f"row() returns {', '.join(row)}, not {', '.join(names)}"


def says_where(text: str, key: str) -> bool:
    """Whether this key is there for the cluster, which looks for the server that has it."""
    return re.search(rf"^-- KEYS {key} .*says where to look on a cluster$", text, re.MULTILINE) is not None


def transgressions(text: str) -> Iterator[str]:
    code = _LUA_COMMENT_OR_STRING.sub(lambda found: found[1] or "", text)
    without_strings = _LUA_COMMENT_OR_STRING.sub("", text)
    for table in re.findall(r"\b(KEYS|ARGV)\s*\[", without_strings):
        yield f"{table}[…] goes around the names"
    for command in _FORBIDDEN.findall(code):
        yield f"{command.upper()} looks at more than it was given"


def words_of(text: str) -> set[str]:
    return set(re.findall(r"[A-Za-z_]\w*", _LUA_COMMENT_OR_STRING.sub("", text)))


def defined_in(part: str) -> set[str]:
    """What a part brings: its own locals."""
    code = _LUA_COMMENT_OR_STRING.sub("", part)
    functions = re.findall(r"^local function (\w+)", code, re.MULTILINE)
    values = re.findall(r"^local ([\w, ]+?)(?: =|$)", code, re.MULTILINE)
    return {*functions, *(name for names in values for name in names.split(", ") if not name.startswith("function "))}


@pytest.mark.parametrize(
    ("code", "complaint"),
    [
        ("-- key\nreturn 'key' .. arg .. column .. value", "key is declared and not used"),
        ("return {key, KEYS [2], arg, column, value}", "KEYS[…] goes around the names"),
        ("redis.call('Scan', 0) return {key, arg, column, value}", "SCAN looks at more than it was given"),
        ('redis.pcall( "KEYS", "*") return {key, arg, column, value}', "KEYS looks at more than it was given"),
        (
            "local value, column = row(1) return {key, arg, column, value}",
            "row() returns column, value, not value, column",
        ),
    ],
)
def test_a_script_that_breaks_its_word_is_found(code: str, complaint: str) -> None:
    assert list(complaints("bad", HEADER + code)) == [complaint]


def test_the_root_is_used_by_the_names_of_families() -> None:
    families = {"ALL_THINGS": Key("all", "set", "removed", "")}
    header = "-- Do something.\n-- ARGV root   where keys begin\n\n"

    assert list(complaints("good", header + "return all_things", families=families)) == []
    assert list(complaints("bad", header + "return 1", families=families)) == ["root is declared and not used"]


def test_a_script_that_keeps_its_word_is_left_alone() -> None:
    good = "-- never KEYS[1]\nlocal column, value = row(1)\nreturn {key, arg .. ' KEYS[1]', column, value}"

    assert list(complaints("good", HEADER + good)) == []


HEADER = """\
-- Do something.
-- KEYS key         one key
-- ARGV arg         one argument
-- ROW KEYS column  a key of each row
-- ROW ARGV value   an argument of each row

"""
