from __future__ import annotations

import pytest

from kizuna.settings import CoordinationSettings, Settings
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
