from __future__ import annotations

import random
from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from kizuna.settings import Settings
from kizuna.store.inspection.looking import Facts
from kizuna.survey.census import Census, Tally, is_sampled
from kizuna.survey.known import Known
from kizuna.survey.tree import OTHERS, Tree, parts_of

KNOWN = Known(Settings())


def facts(key: str, *, kind: str = "string", ttl_ms: int | None = None, size: int | None = 100) -> Facts:
    return Facts(key.encode(), kind, ttl_ms, size)


def test_memory_is_counted_by_family_and_component() -> None:
    census = Census(KNOWN)
    census.add([facts("poppo:queue:high", kind="list", size=500), facts("poppo:queue:low", kind="list", size=300)])
    census.add([facts("poppo:nobody:knows", size=7), facts("kizuna:restored:x", ttl_ms=5, size=50)])

    assert {name: tally.bytes for name, tally in census.families.items()} == {
        ("coordination", "QUEUE"): 800,
        ("store", "RESTORED"): 50,
        ("nobody", "in no family"): 7,
    }
    assert {name: tally.bytes for name, tally in census.components().items()} == {
        "coordination": 800,
        "store": 50,
        "nobody": 7,
    }
    assert (census.total.keys, census.total.bytes, census.total.without_end) == (4, 857, 3)
    assert census.problems == {"undeclared": 1}
    assert census.examples == {"undeclared": [b"poppo:nobody:knows"]}


def test_paths_of_units_are_counted_by_their_status() -> None:
    census = Census(KNOWN)
    census.add([facts("muf/a/req/1", ttl_ms=5), facts("muf/b/req/2", ttl_ms=5), facts("muf/a/res/1")])

    assert {name: tally.keys for name, tally in census.families.items()} == {
        ("units", "REQUEST"): 2,
        ("units", "RESPONSE"): 1,
    }
    assert census.examples == {"never ends": [b"muf/a/res/1"]}


@given(sizes=st.lists(st.integers(0, 1000), max_size=50), biggest=st.integers(0, 5))
def test_the_biggest_keys_are_named_in_order(sizes: list[int], biggest: int) -> None:
    census = Census(KNOWN, biggest)
    census.add(facts(f"poppo:temp:{number}", size=size) for number, size in enumerate(sizes))

    assert [size for size, _, _ in census.biggest_keys()] == sorted(sizes, reverse=True)[:biggest]


def test_a_key_that_comes_twice_is_one_of_the_biggest_once() -> None:
    census = Census(KNOWN, 2)
    census.add([facts("poppo:temp:a", size=9), facts("poppo:temp:b", size=5), facts("poppo:temp:a", size=9)])

    assert [key for _, key, _ in census.biggest_keys()] == [b"poppo:temp:a", b"poppo:temp:b"]


def test_a_sample_comes_with_an_error_that_holds() -> None:
    chance = random.Random(3)
    held = 0
    for _ in range(100):
        sizes = [chance.randint(50, 5_000) for _ in range(400)]
        tally = Tally()
        for number, size in enumerate(sizes):
            tally.add(facts(str(number), size=size if chance.random() < 0.2 else None))
        held += abs(tally.bytes - sum(sizes)) <= tally.error_bytes

    assert held > 85  # 95 of 100 are promised


def test_what_is_measured_whole_has_no_error() -> None:
    tally = Tally()
    tally.add(facts("a", size=5))
    tally.add(facts("b", size=50))

    assert (tally.bytes, tally.error_bytes) == (55, 0)


def test_a_sample_is_the_same_every_time_and_about_as_large_as_it_should_be() -> None:
    keys = [b"poppo:task:info:%d" % number for number in range(10_000)]
    sampled = [key for key in keys if is_sampled(key, 10)]

    assert 800 < len(sampled) < 1_200
    assert all(is_sampled(key, 1) for key in keys)


# trees


def drawn(tree: Tree, most: int = 101) -> Iterator[tuple[int, str, int]]:
    for line in tree.lines(most):
        yield line.depth, line.name, line.branch.keys


def test_keys_are_counted_by_their_parts() -> None:
    tree = Tree(depth=2)
    tree.add([facts("poppo:queue:high"), facts("poppo:queue:low"), facts("poppo:lock:a", ttl_ms=5), facts("muf/a/b")])

    assert list(drawn(tree)) == [(0, "muf", 1), (1, "a", 1), (0, "poppo", 3), (1, "lock", 1), (1, "queue", 2)]
    poppo = tree.top.branches["poppo"]
    assert (poppo.with_ttl, poppo.types) == (1, {"string": 3})


def test_shards_are_counted_together() -> None:
    assert parts_of(b"{poppo:3}:queue:high") == ["{poppo:*}", "queue", "high"]
    assert parts_of(b"{tag}:x") == ["{tag}", "x"]
    assert parts_of(b"{:3}allTickets") == ["{:*}", "allTickets"]
    assert parts_of(b"{mm1::3}assign:a") == ["{mm1::*}", "assign", "a"]
    assert parts_of(b"{a:b}rest:x") == ["{a", "b}rest", "x"]


def test_tickets_are_counted_together() -> None:
    assert parts_of(b"dbsgf9hksdudin8907v0") == ["<id>"]
    assert parts_of(b"assign:dbsgf9hksdudin8907vg") == ["assign", "<id>"]
    assert parts_of(b"mm1.dbsgf9hksdudin8907v0") == ["mm1.<id>"]
    assert parts_of(b"poppo:token:0123456789abcdef0123456789abcdef") == ["poppo", "token", "0123456789abcdef" * 2]


def test_a_tree_stays_small_and_counts_every_key() -> None:
    tree = Tree(depth=4)
    tree.add(facts(f"poppo:task:{number % 300}:{number}") for number in range(20_000))

    lines = list(drawn(tree))
    assert len(lines) < 25_000
    below_task = [keys for depth, _, keys in lines if depth == 2]
    assert sum(below_task) == 20_000
    assert len(below_task) == 101


def test_few_of_many_are_drawn_and_the_rest_in_one_line() -> None:
    tree = Tree(depth=2)
    tree.add(facts(f"poppo:{number}") for number in range(50))
    tree.add(facts(f"poppo:many:{number}") for number in range(7))

    lines = list(drawn(tree, most=5))
    assert lines[0] == (0, "poppo", 57)
    assert (1, "many", 7) in lines
    assert lines[-1] == (1, OTHERS, 50 - 3)
    assert len(lines) == 6
