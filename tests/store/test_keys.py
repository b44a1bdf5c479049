from __future__ import annotations

from binascii import crc_hqx
from fnmatch import fnmatchcase
from itertools import combinations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kizuna.errors import IllegalName, SettingsError
from kizuna.store.client import Store
from kizuna.store.keys import CANARY, LONGEST_NAME, MOST_PARTS, JoinedBy, Key, Roots, key_slot
from kizuna.testing import ClusterSetup

patiently = settings(deadline=None)

# One family of every shape that the system's namespaces have.
LOCK = Key("lock:<lock...>", "string", "expires", "")
FENCE = Key("fence:{<lock...>}:number", "string", "never", "")
HEARTBEAT = Key("process:heartbeat:<process>", "string", "expires", "")
QUEUE = Key("queue:<priority>", "list", "removed", "")
DAILY = Key("stats:<category>:daily:<date>", "hash", "expires", "")
REQUEST = Key("<unit>/req/<id>", "string", "expires", "", joined_by="/")
REPLY = Key("<unit>/res/<id>", "string", "expires", "", joined_by="/")
ALL_TICKETS = Key("allTickets", "set", "removed", "", joined_by="")
ASSIGNMENT = Key("assign:<ticket>", "string", "expires", "", joined_by="")
TICKET = Key("<ticket>", "string", "expires", "", joined_by="", apart_from=(ALL_TICKETS,))
THEIR_LOCK = Key("fetchTicketsLock", "string", "expires", "", joined_by="", before_root="rueidislock:0:")
FAMILIES = [LOCK, FENCE, HEARTBEAT, QUEUE, DAILY, REQUEST, REPLY, ALL_TICKETS, ASSIGNMENT, TICKET, THEIR_LOCK, CANARY]

NEVER_LEGAL = "*?[]\\{} \t\n\r\0\x1f\x7f\x85\xa0\u2003\u2028\u3000\ud800\udfff"

characters = st.characters(exclude_categories=["Cc", "Cs", "Zs", "Zl", "Zp"], exclude_characters="*?[]\\{}:/")
names = st.text(characters, min_size=1, max_size=12)
rests = st.lists(names, min_size=1, max_size=4).map(":".join)
literals = st.text("abcxyz_-.", min_size=1, max_size=4)
roots = st.one_of(names, st.builds("{{{}:{}}}".format, names, st.integers(0, 99)), rests)


@st.composite
def families(draw: st.DrawFn) -> Key:
    joined_by: JoinedBy = draw(st.sampled_from([":", "/", ""]))
    holes = draw(st.lists(st.sampled_from("abcdef"), unique=True, max_size=4))
    texts = draw(st.lists(literals, max_size=3)) + [f"<{hole}>" for hole in holes]
    parts: list[str] = draw(st.permutations(texts or ["only"]))
    if len(holes) > 0 and draw(st.booleans()):
        last = max(number for number, part in enumerate(parts) if part.startswith("<"))
        parts[last] = parts[last].replace(">", "...>")
    wraps = st.sampled_from([("", ""), ("{", "}"), ("", "-x"), ("v", "")])
    wrapped = [before + part + after for part in parts for before, after in [draw(wraps)]]
    return Key((joined_by or ":").join(wrapped), "string", "removed", "", joined_by=joined_by)


@st.composite
def declared_families_with_names(draw: st.DrawFn) -> tuple[Key, dict[str, str]]:
    key = draw(st.one_of(families(), st.sampled_from(FAMILIES)))
    some = st.lists(names, min_size=1, max_size=4).map(key.separator.join)
    return key, {part.name: draw(some if part.takes_rest else names) for part in key.parts if part.name}


@patiently
@given(declared=declared_families_with_names(), root=roots)
def test_parse_gives_back_the_names_that_build_was_given(declared: tuple[Key, dict[str, str]], root: str) -> None:
    key, its_names = declared

    built = key.build(root, **its_names)

    assert built.startswith(key.before_root + root)
    assert key.parse(root, built) == its_names
    assert key.parse(root, built.encode()) == its_names


@patiently
@given(declared=declared_families_with_names(), root=roots)
def test_every_key_is_matched_by_the_globs_of_its_family(declared: tuple[Key, dict[str, str]], root: str) -> None:
    key, its_names = declared

    built = key.build(root, **its_names)

    assert fnmatchcase(built, key.glob(root))
    assert key.glob(root, **its_names) == built
    for name in its_names:
        assert fnmatchcase(built, key.glob(root, **{name: its_names[name]}))


@patiently
@given(key=families(), root=roots, text=st.text(st.one_of(characters, st.sampled_from(":/{}-xv")), max_size=20))
def test_what_parses_is_what_build_would_make(key: Key, root: str, text: str) -> None:
    stray = root + key.joined_by + text
    found = key.parse(root, stray)

    assert found is None or key.build(root, **found) == stray


@patiently
@given(data=st.data(), root=roots)
def test_a_key_belongs_to_its_own_family_only(data: st.DataObject, root: str) -> None:
    key = data.draw(st.sampled_from(FAMILIES))
    # Names that look like other families' texts are the ones that could lead astray.
    tempting = st.one_of(names, st.sampled_from(["req", "res", "lock", "holder", "daily", "assign", "number"]))
    built = key.build(root, **{name: data.draw(tempting) for name in key.names})

    assert [family.pattern for family in FAMILIES if family.parse(root, built) is not None] == [key.pattern]


@patiently
@given(declared=declared_families_with_names(), root=roots, data=st.data())
def test_no_name_leaves_its_place(declared: tuple[Key, dict[str, str]], root: str, data: st.DataObject) -> None:
    key, its_names = declared
    assume(its_names)
    hole = data.draw(st.sampled_from(sorted(its_names)))
    legal = its_names[hole]
    place = data.draw(st.integers(0, len(legal)))

    for illegal in NEVER_LEGAL:
        its_names[hole] = legal[:place] + illegal + legal[place:]
        with pytest.raises(IllegalName) as refused:
            key.build(root, **its_names)
        with pytest.raises(IllegalName):
            key.glob(root, **its_names)
        assert (refused.value.place, refused.value.name) == (hole, its_names[hole])
        assert repr(illegal) in str(refused.value)


@pytest.mark.parametrize(
    ("key", "names", "sentence"),
    [
        (QUEUE, {"priority": ""}, "'' cannot be the priority of a key: it is empty"),
        (QUEUE, {"priority": "a:b"}, "'a:b' cannot be the priority of a key: ':' is not allowed in a name"),
        (REQUEST, {"unit": "a/b", "id": "1"}, "'a/b' cannot be the unit of a key: '/' is not allowed in a name"),
        (TICKET, {"ticket": "a/b"}, "'a/b' cannot be the ticket of a key: '/' is not allowed in a name"),
        (LOCK, {"lock": "a::b"}, "'a::b' cannot be the lock of a key: a part of it is empty, beside ':'"),
        (LOCK, {"lock": ":"}, "':' cannot be the lock of a key: a part of it is empty, beside ':'"),
        (LOCK, {"lock": "a:b c"}, "'a:b c' cannot be the lock of a key: ' ' is not allowed in a name"),
        (
            QUEUE,
            {"priority": "x" * (LONGEST_NAME + 1)},
            f"'{'x' * 40}…' cannot be the priority of a key: it is longer than 256 characters",
        ),
        (
            LOCK,
            {"lock": ":".join("x" * (MOST_PARTS + 1))},
            f"'{':'.join('x' * 33)}' cannot be the lock of a key: it has more than 32 parts",
        ),
        (TICKET, {"ticket": "allTickets"}, "'allTickets' cannot be the <ticket> of a key: it is the key of allTickets"),
    ],
)
def test_an_illegal_name_is_refused_with_a_sentence(key: Key, names: dict[str, str], sentence: str) -> None:
    with pytest.raises(IllegalName) as refused:
        key.build("" if key is TICKET else "r", **names)

    assert str(refused.value) == sentence


def test_the_longest_legal_names_are_taken() -> None:
    part = "x" * LONGEST_NAME
    rest = ":".join([part] * MOST_PARTS)

    assert QUEUE.parse("r", QUEUE.build("r", priority=part)) == {"priority": part}
    assert LOCK.parse("r", LOCK.build("r", lock=rest)) == {"lock": rest}


def test_keys_look_as_declared() -> None:
    assert QUEUE.build("poppo", priority="high") == "poppo:queue:high"
    assert LOCK.build("poppo", lock="issue:123") == "poppo:lock:issue:123"
    assert FENCE.build("{poppo:3}", lock="issue:123") == "{poppo:3}:fence:{issue:123}:number"
    assert REQUEST.build("muf", unit="detector", id="a:1") == "muf/detector/req/a:1"
    assert ALL_TICKETS.build("") == "allTickets"
    assert ASSIGNMENT.build("mm1:", ticket="cko1234abc") == "mm1:assign:cko1234abc"
    assert TICKET.build("", ticket="ステージ") == "ステージ"
    assert THEIR_LOCK.build("") == "rueidislock:0:fetchTicketsLock"
    assert THEIR_LOCK.build("mm1:") == "rueidislock:0:mm1:fetchTicketsLock"
    assert THEIR_LOCK.build("{mm1:3}") == "rueidislock:0:{mm1:3}fetchTicketsLock"


def test_globs_look_as_declared() -> None:
    assert DAILY.glob("poppo") == "poppo:stats:*:daily:*"
    assert DAILY.glob("{poppo:3}", category="issues") == "{poppo:3}:stats:issues:daily:*"
    assert REQUEST.glob("muf", id="detector.1") == "muf/*/req/detector.1"
    assert TICKET.glob("") == "*"
    assert THEIR_LOCK.glob("mm1:") == "rueidislock:0:mm1:fetchTicketsLock"


def test_what_is_no_key_of_the_family_parses_to_none() -> None:
    assert QUEUE.parse("poppo", "poppo:queue:") is None
    assert QUEUE.parse("poppo", "poppo:queue:high:low") is None
    assert QUEUE.parse("poppo", "poppo2:queue:high") is None
    assert QUEUE.parse("poppo", "muffo:queue:high") is None
    assert Key("v1.0-<x>", "string", "removed", "").parse("poppo", "poppo:v1_0-a") is None
    assert QUEUE.parse("poppo", b"poppo:queue:\xff") is None
    assert QUEUE.parse("poppo", "poppo:queue:\ud800") is None
    assert QUEUE.parse("poppo", "poppo:queue:high\n") is None
    assert FENCE.parse("poppo", "poppo:fence:nightly:number") is None
    assert TICKET.parse("", "allTickets") is None
    assert THEIR_LOCK.parse("mm1:", "mm1:fetchTicketsLock") is None
    assert THEIR_LOCK.parse("mm1:", "rueidislock:1:mm1:fetchTicketsLock") is None
    assert THEIR_LOCK.parse("mm1:", "rueidislock:0:mm1:fetchTicketsLock") == {}


def test_wrong_places_are_a_mistake_of_the_programmer() -> None:
    with pytest.raises(TypeError, match=r"queue:<priority> needs a name for 'priority'"):
        QUEUE.build("r")
    with pytest.raises(TypeError, match=r"queue:<priority> has no place for priorty"):
        QUEUE.build("r", priority="high", priorty="low")
    with pytest.raises(TypeError, match=r"queue:<priority> has no place for priorty"):
        QUEUE.glob("r", priorty="high")


@pytest.mark.parametrize("name", [1, None, 1.5, b"high", [], {}, object()], ids=lambda name: type(name).__name__)
def test_what_is_no_text_is_no_name(name: object) -> None:
    with pytest.raises(IllegalName, match=rf"the priority of a key: it is no text, but of type {type(name).__name__}"):
        QUEUE.build("r", priority=name)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "pattern",
    [
        "",
        "a::b",
        ":a",
        "a:<b>:",
        "<a><b>",
        "<a>-<b>",
        "<a>:<a>",
        "<a...>:<b>",
        "a*",
        "a b",
        "<A>",
        "<a",
        "a>",
        "<a..>",
        "<>",
    ],
)
def test_a_pattern_that_could_not_be_read_back_is_refused_where_it_is_declared(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"cannot be a part|two places|only the last place"):
        Key(pattern, "string", "removed", "")


def test_a_pattern_behind_a_bare_prefix_has_no_slash() -> None:
    with pytest.raises(ValueError, match="'/' is not allowed there"):
        Key("a/b", "string", "removed", "", joined_by="")


@pytest.mark.parametrize("root", ["", "a:", "a b", "a*", "a{", "{}", "{a}{b}", "{a{b}}", "\ud800", "x" * 257])
def test_an_illegal_root_is_refused(root: str) -> None:
    with pytest.raises(IllegalName, match="cannot be the root of a key: "):
        QUEUE.build(root, priority="high")
    with pytest.raises(IllegalName, match="cannot be the root of a key: "):
        QUEUE.parse(root, "a:queue:high")


@pytest.mark.parametrize("root", ["a", "a:b", "a/b", "{a}", "a{b}c", "{poppo:3}", "組"])
def test_a_legal_root_is_taken(root: str) -> None:
    assert QUEUE.parse(root, QUEUE.build(root, priority="high")) == {"priority": "high"}


def test_one_shard_is_the_plain_root() -> None:
    assert Roots("poppo").all == ("poppo",)
    assert Roots("poppo").of("any group") == "poppo"


def test_shards_are_chosen_by_the_crc16_of_the_partition() -> None:
    roots = Roots("poppo", 4)

    assert roots.all == ("{poppo:0}", "{poppo:1}", "{poppo:2}", "{poppo:3}")
    # 0x31C3 is the check value that the definition of CRC-16/XMODEM gives for these nine digits.
    assert roots.of("123456789") == f"{{poppo:{0x31C3 % 4}}}"
    assert {roots.of(f"group-{number}") for number in range(100)} == set(roots.all)


@given(root=names, partition=st.text(), shards=st.integers(2, 50))
def test_all_keys_of_a_partition_lie_in_one_slot(root: str, partition: str, shards: int) -> None:
    shard = Roots(root, shards).of(partition)
    keys = [
        QUEUE.build(shard, priority="high"),
        FENCE.build(shard, lock="nightly"),
        CANARY.build(shard, place="a", reader="b"),
    ]

    assert len({key_slot(key) for key in keys}) == 1


def test_shards_that_would_share_a_slot_or_not_exist_are_refused() -> None:
    with pytest.raises(IllegalName, match="it has a hash tag, and shards bring their own"):
        Roots("{poppo}", 2)
    with pytest.raises(SettingsError, match="poppo cannot have 0 shards"):
        Roots("poppo", 0)


@pytest.mark.parametrize(
    ("key", "same_as"),
    [
        ("a{b}c", "b"),
        ("{b}{c}", "b"),
        ("{b", "{b"),
        ("a{}{b}", "a{}{b}"),
        ("a{{b}}", "{b"),
        ("}{b}", "b"),
    ],
)
def test_the_slot_follows_the_first_hash_tag(key: str, same_as: str) -> None:
    assert key_slot(key) == key_slot(key.encode()) == crc_hqx(same_as.encode(), 0) % 16384


def test_known_slots() -> None:
    # From the specification of the cluster.
    assert key_slot("123456789") == 0x31C3
    assert key_slot(b"foo{hash_tag}") == 2515


@pytest.mark.parametrize("key", ["plain", "a{b}c", "{b}{c}", "{b", "a{}{b}", "a{{b}}", "}{b}", "組:{絆}:1"])
def test_the_server_itself_counts_the_same_slot(cluster: ClusterSetup, key: str) -> None:
    assert cluster.slot_of(key) == key_slot(key)


async def test_a_glob_finds_the_family_on_the_server(store: Store, root: str) -> None:
    shard = Roots(root, 4).of("group")
    locks = {LOCK.build(shard, lock=lock).encode() for lock in ("nightly", "issue:123", "^!-<>$ü絆")}
    other = QUEUE.build(shard, priority="high").encode()
    for key in (*locks, other):
        await store.call("SET", key, "x")

    _, found = await store.call("SCAN", 0, "MATCH", LOCK.glob(shard), "COUNT", 1_000_000)
    await store.call("UNLINK", *locks, other)

    assert set(found) == locks


def test_families_are_values() -> None:
    assert Key("a:<b>", "set", "never", "m") == Key("a:<b>", "set", "never", "m")
    assert len({*FAMILIES, *FAMILIES}) == len(FAMILIES)
    assert all(one != other for one, other in combinations(FAMILIES, 2))


def test_declaring_a_family_costs_little_until_keys_are_parsed() -> None:
    family = Key("lock:<lock>", "string", "expires", "held")
    assert "_regex" not in vars(family)
    assert family.parse("poppo", "poppo:lock:a") == {"lock": "a"}
