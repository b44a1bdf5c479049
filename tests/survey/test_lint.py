from __future__ import annotations

import pytest

from kizuna.settings import CoordinationSettings, RootsSettings, Settings
from kizuna.store.inspection.looking import Facts
from kizuna.survey.known import Known
from kizuna.survey.lint import Finding, problem_with

PLAIN = Known(Settings())
SHARDED = Known(Settings(coordination=CoordinationSettings(shards=4)))


def problem(known: Known, key: bytes, kind: str, ttl_ms: int | None) -> Finding | None:
    return problem_with(known, Facts(key, kind, ttl_ms, None), known.find(key))


@pytest.mark.parametrize(
    ("key", "kind", "ttl_ms", "found"),
    [
        (b"poppo:queue:high", "list", None, None),
        (b"poppo:lock:issue:1", "string", 5_000, None),
        (b"kizuna:restoring:{all}:x", "zset", 5_000, None),
        (b"poppo:lock:issue:1", "string", None, "never ends"),
        (b"poppo:flags:debug", "string", 5_000, "ends"),
        (b"poppo:queue:high", "stream", None, "wrong type"),
        (b"poppo:state:unified", "hash", None, "undeclared"),
        (b"poppo:project:7:issue:1", "string", None, "undeclared"),
        (b"poppo:events", "list", None, "undeclared"),
        (b"poppobuilder:queue:high", "list", None, "beside a root"),
        (b"poppo", "string", None, "beside a root"),
        (b"muf/unit_a/req/42", "string", 9_000, None),
        (b"muf/unit_a/keep/claim.b.42", "string", 9_000, None),
        (b"muf/unit_a/req/42", "string", None, "never ends"),
        (b"muf/unit_a/res/42", "hash", 9_000, "wrong type"),
        (b"muf/unit_a/request/42", "string", 9_000, "undeclared"),
        (b"muf/unit_a", "string", 9_000, "undeclared"),
        (b"muf/Unit_A/req/42", "string", 9_000, "undeclared"),
        (b"mufti/unit_a/req/42", "string", None, "beside a root"),
        (b"allTickets", "set", None, None),
        (b"allTickets", "hash", None, "wrong type"),
        (b"dbsgf9hksdudin8907v0", "string", 9_000, None),
        (b"dbsgf9hksdudin8907v0", "string", None, "never ends"),
        (b"rueidislock:0:fetchTicketsLock", "string", 5_000, None),
    ],
)
def test_what_is_not_as_declared_is_found(key: bytes, kind: str, ttl_ms: int | None, found: str | None) -> None:
    finding = problem(PLAIN, key, kind, ttl_ms)

    assert (finding and finding.problem) == found


def test_keys_outside_the_shards_in_use_are_told() -> None:
    for known, key, told in (
        (SHARDED, b"poppo:queue:high", "it is not in one of the 4 shards of poppo"),
        (SHARDED, b"{poppo:9}:queue:high", "it is in a shard that is not in use: poppo has 4"),
        (PLAIN, b"{poppo:0}:queue:high", "it is in a shard that is not in use: poppo has 1"),
    ):
        finding = problem(known, key, "list", None)
        assert finding == Finding(key, "undeclared", told)


def test_behind_a_prefix_of_its_own_there_is_nothing_else() -> None:
    prefixed = Known(Settings(roots=RootsSettings(match="mm1:")))

    assert problem(prefixed, b"mm1:assign:x", "string", 9_000) is None
    finding = problem(prefixed, b"mm1:what:is:this", "string", 9_000)
    assert finding == Finding(b"mm1:what:is:this", "undeclared", "no family has such a key")


def test_a_root_that_is_shared_has_the_shards_of_the_component_that_is_in_shards() -> None:
    roots = RootsSettings(system="all", coordination="all", units="all")
    known = Known(Settings(roots=roots, coordination=CoordinationSettings(shards=4)))

    finding = problem(known, b"all:queue:high", "list", None)
    assert finding == Finding(b"all:queue:high", "undeclared", "it is not in one of the 4 shards of all")
    finding = problem(known, b"all/a/b", "string", None)
    assert finding == Finding(b"all/a/b", "undeclared", "no family has such a key")


@pytest.mark.parametrize(
    ("key", "what"),
    [
        (b"muf/Unit_A/req/42", "it is not in lower case, as the paths of units are"),
        (b"muf/Unit_A/nope/42", "no family has such a key"),
        (b"poppo:QUEUE:high", "no family has such a key"),
    ],
)
def test_a_path_that_is_not_in_lower_case_is_told_as_such(key: bytes, what: str) -> None:
    finding = problem(PLAIN, key, "string", 9_000)

    assert finding == Finding(key, "undeclared", what)
