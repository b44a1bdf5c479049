"""The JSON file of a namespace: read, checked against what is declared, and used."""

from __future__ import annotations

import copy
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from kizuna.coordination.namespace_file import load_namespace_file, read_namespace
from kizuna.errors import IllegalName, SettingsError
from kizuna.settings import load_settings

ORIGINAL: dict[str, Any] = {
    "redis": {
        "namespace": "poppo",
        "keyPatterns": {
            "issue": "poppo:issue:{type}:{number}",
            "process": "poppo:process:{type}:{id}",
            "queue": "poppo:queue:{priority}",
            "stats": "poppo:stats:{category}:{period}:{date}",
        },
        "channels": {
            "mirinRequests": "poppo:channel:mirin:requests",
            "mirinResponses": "poppo:channel:mirin:responses",
            "events": "poppo:channel:events:{type}",
        },
        "ttl": {"heartbeat": 1800, "tempData": 3600, "stats": 604800},
    }
}


def changed(section: str, name: str, value: object) -> str:
    content = copy.deepcopy(ORIGINAL)
    content["redis"][section][name] = value
    return json.dumps(content)


def problems(text: str) -> tuple[str, ...]:
    with pytest.raises(SettingsError) as wrong:
        read_namespace(text, "redis.json")
    return wrong.value.problems


def test_the_original_file_is_read_and_names_the_original_keys(tmp_path: Path) -> None:
    path = tmp_path / "redis.json"
    path.write_text(json.dumps(ORIGINAL))
    file = load_namespace_file(path)

    assert file.root == "poppo"
    assert file.ttl == {"heartbeat": 1800, "tempData": 3600, "stats": 604800}
    assert file.key("issue", type="status", number=123) == "poppo:issue:status:123"
    assert file.key("process", type="heartbeat", id="issue-123-poppo") == "poppo:process:heartbeat:issue-123-poppo"
    assert file.key("queue", priority="high") == "poppo:queue:high"
    assert file.key("stats", category="issues", period="daily", date="2025-06-19") == (
        "poppo:stats:issues:daily:2025-06-19"
    )
    assert file.channel("mirinRequests") == "poppo:channel:mirin:requests"
    assert file.channel("events", type="issue:status") == "poppo:channel:events:issue:status"


def test_settings_are_made_of_it() -> None:
    text = json.dumps({"redis": {"namespace": "nami", "ttl": {"heartbeat": 60, "tempData": 7, "session": 8}}})
    settings = load_settings(read_namespace(text).overrides(), environ={}, cwd="/")

    assert settings.roots.coordination == "nami"
    assert (settings.kept.heartbeat_s, settings.kept.temp_s, settings.kept.session_s) == (60, 7, 8)
    assert settings.kept.stats_s == 604_800


def test_a_placeholder_may_stand_within_a_part_and_have_capitals() -> None:
    file = read_namespace(changed("keyPatterns", "worker", "poppo:process:info:issue-{issueNumber}-poppo"))

    assert file.key("worker", issueNumber=123) == "poppo:process:info:issue-123-poppo"


@pytest.mark.parametrize(
    ("pattern", "names", "sentence"),
    [
        ("issue", {"type": "owner", "number": 1}, "only issue:status:<issue> or issue:metadata:<issue> is declared"),
        ("issue", {"type": "status", "number": "1:2"}, "':' is not allowed in a name"),
        ("queue", {"priority": "urgent"}, "'urgent' cannot be the priority of a key"),
        ("queue", {"priority": "images:high"}, "'images:high' cannot be the priority of a key"),
        ("isue", {"type": "status"}, "did you mean 'issue'?"),
    ],
)
def test_a_name_that_makes_no_declared_key_is_refused(pattern: str, names: dict[str, Any], sentence: str) -> None:
    with pytest.raises(IllegalName) as refused:
        read_namespace(json.dumps(ORIGINAL)).key(pattern, **names)

    assert sentence in str(refused.value)


def test_a_missing_or_unknown_placeholder_is_told() -> None:
    file = read_namespace(json.dumps(ORIGINAL))

    with pytest.raises(TypeError, match="has the placeholders type, number; number is missing or too many"):
        file.key("issue", type="status")
    with pytest.raises(TypeError, match="has the placeholders none; of is missing"):
        file.channel("mirinRequests", of="x")


@pytest.mark.parametrize(
    ("section", "name", "value", "sentence"),
    [
        ("keyPatterns", "x", "other:issue:{type}:{number}", "it should begin with poppo:"),
        ("keyPatterns", "x", "poppo:project:{id}:issue:{n}", "no such key is declared; there are 'issue', "),
        ("keyPatterns", "x", "poppo:isues:processing", "no such key is declared; did you mean 'issues'?"),
        ("keyPatterns", "x", "poppo:issue:{number}", "there is issue:status:<issue> or issue:metadata:<issue>"),
        ("keyPatterns", "x", "poppo:{a}:{b}", "no such key is declared"),
        ("keyPatterns", "x", "poppo:lock:{na me}", "a placeholder is written {name}"),
        ("keyPatterns", "x", "poppo:lock:{a}:{a}", "each placeholder needs a name of its own"),
        ("keyPatterns", "x", "poppo:lock:{a}{b}", "cannot be a part of"),
        ("keyPatterns", "x", "poppo:lock:a b", "cannot be a part of"),
        ("keyPatterns", "x", "poppo:queue:urgent", "only high, normal and low are"),
        ("keyPatterns", "x", "poppo:channel:mirin:requests", "no such key is declared"),
        ("keyPatterns", "x", 5, "it should be text"),
        ("channels", "x", "poppo:events", "no such key is declared; there are 'channel'"),
        ("ttl", "tempdata", 5, "'tempdata' is not a time in ttl; did you mean 'tempData'?"),
        ("ttl", "stats", 0, "ttl.stats = 0: expected seconds, a whole number from 1 to ten years"),
        ("ttl", "stats", 1.5, "ttl.stats = 1.5: expected seconds"),
        ("ttl", "stats", True, "ttl.stats = True: expected seconds"),
        ("ttl", "stats", "604800", "ttl.stats = '604800': expected seconds"),
    ],
)
def test_what_is_wrong_is_told_in_a_sentence(section: str, name: str, value: object, sentence: str) -> None:
    (problem,) = problems(changed(section, name, value))

    assert problem.startswith("redis.json: ")
    assert sentence in problem


@pytest.mark.parametrize("namespace", [None, 5, "", "a b", "po*", "{poppo}", "poppo:"])
def test_a_namespace_that_cannot_be_a_root_is_refused(namespace: object) -> None:
    (problem,) = problems(json.dumps({"redis": {"namespace": namespace}}))

    assert problem.startswith("redis.json: namespace")


def test_all_problems_are_told_at_once() -> None:
    content = copy.deepcopy(ORIGINAL)
    content["valkey"] = {}
    content["redis"]["keyPattern"] = {}
    content["redis"]["keyPatterns"]["a"] = "poppo:flag:{n}"
    content["redis"]["channels"] = []
    content["redis"]["ttl"]["statistics"] = 1

    assert [problem.removeprefix("redis.json: ") for problem in problems(json.dumps(content))] == [
        "'valkey' is not a section; there are 'redis'",
        "'keyPattern' is not a section in redis; did you mean 'keyPatterns'?",
        "keyPatterns.a = 'poppo:flag:{n}': no such key is declared; did you mean 'flags'?",
        "channels should be a table, not []",
        "'statistics' is not a time in ttl; did you mean 'stats'?",
    ]


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"redis": []}', "[" * 100_000])
def test_what_is_no_such_file_is_told_to_be_none(text: str) -> None:
    assert len(problems(text)) == 1


def test_a_name_that_stands_there_twice_is_told() -> None:
    text = '{"redis": {"namespace": "a", "namespace": "b"}}'

    assert problems(text) == ("redis.json: 'namespace' stands there twice",)


def test_a_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    (tmp_path / "latin.json").write_bytes(b"\xff")

    with pytest.raises(SettingsError, match="cannot be read: No such file"):
        load_namespace_file(tmp_path / "none.json")
    with pytest.raises(SettingsError, match="it is not UTF-8"):
        load_namespace_file(tmp_path / "latin.json")


@hypothesis_settings(deadline=None)
@given(
    content=st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=8),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["redis", "namespace", "keyPatterns", "channels", "ttl", "stats", "x"]),
                inner,
                max_size=4,
            )
        ),
        max_leaves=12,
    )
)
def test_no_file_makes_it_stumble(content: object) -> None:
    with suppress(SettingsError):
        assert read_namespace(json.dumps(content)).root


def test_a_namespace_that_is_missing_is_told() -> None:
    with pytest.raises(SettingsError, match="namespace is missing"):
        read_namespace('{"redis": {}}')
