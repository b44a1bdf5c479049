from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from kizuna.cli.exit_codes import CONFLICT, NOT_FOUND, USAGE
from kizuna.cli.memory import COMMANDS, memory
from kizuna.cli.memory.put import KINDS
from kizuna.memory import item as items
from kizuna.testing import ServerProcess
from kizuna.testing.commands import Runner


@pytest.mark.parametrize("name", COMMANDS)
def test_the_line_of_help_in_the_list_is_the_one_of_the_command(name: str) -> None:
    assert memory.load(name).get_short_help_str(limit=200) == COMMANDS[name].help


def test_the_kinds_that_can_be_said_are_those_that_there_are() -> None:
    assert KINDS == items.KINDS


# put and get


def test_what_is_put_is_got_and_its_id_is_all_that_is_printed(kizuna: Runner) -> None:
    kept = kizuna.done("put", "Ana prefers trains", "--type", "fact", "--context", "trip-7", "--ttl", "600")
    id_ = kept.stdout.strip()

    assert kept.stdout == f"{id_}\n"
    assert kept.stderr == "fact in trip-7, version 1, for 10 min 0 s.\n"
    assert kizuna.done("get", id_, "--content").stdout == "Ana prefers trains"
    told = kizuna.row("get", id_)
    assert (told["id"], told["type"], told["context"], told["priority"]) == (id_, "fact", "trip-7", 5)
    assert (told["content"], told["version"]) == ("Ana prefers trains", 1)


@pytest.mark.parametrize(("ttl", "told"), [("5", "1 min 0 s, as memory.item_least_s has it"), ("60", "1 min 0 s")])
def test_who_asked_for_a_life_beyond_the_bounds_is_told(kizuna: Runner, ttl: str, told: str) -> None:
    assert kizuna.done("put", "x", "--ttl", ttl).stderr == f"note in global, version 1, for {told}.\n"


def test_everything_that_an_item_has_can_be_said_and_is_shown_to_people(kizuna: Runner) -> None:
    line = ["put", '{"a": [1, 2]}', "--id", "sum", "--priority", "8", "--kind", "result", "--cost", "30"]
    more = ["--metadata", "from=a: b", "--metadata", "n=3", "--depends-on", "prices", "--generation", "model"]
    kizuna.done(*line, *more)
    told = kizuna.row("get", "sum")
    shown = kizuna.done("get", "sum").stdout
    facts, _, content = shown.partition("\n\n")

    assert told["metadata"] == {"from": "a: b", "n": 3}
    assert (told["kind"], told["depends_on"], told["generation"]) == ("result", ["prices"], "model")
    record = {line[:12].strip(): line[12:].strip() for line in facts.splitlines()}
    assert (record["id"], record["type"], record["priority"], record["kind"]) == ("sum", "note", "8", "result")
    assert (record["depends on"], record["metadata"]) == ("prices", '{"from": "a: b", "n": 3}')
    assert ", in 17 min " in record["ends"]  # 5 min, times 1 + 5 · 30 s of a minute
    assert json.loads(content) == {"a": [1, 2]}
    assert content.splitlines()[1] == '  "a": ['


@pytest.mark.parametrize(
    ("text", "options", "content"),
    [
        ("3", [], 3),
        ("3", ["--text"], "3"),
        ("[]", [], []),
        ("null", [], None),
        ("12345678901234567890123", [], 12345678901234567890123),
        ("NaN", [], "NaN"),
        ("{broken", [], "{broken"),
        ('{"a": 1}', ["--json-content"], {"a": 1}),
        ("絆", [], "絆"),
        ("", [], ""),
        ("-x", [], "-x"),
    ],
)
def test_content_is_json_if_it_can_be_read_as_such_and_else_text(
    kizuna: Runner, text: str, options: list[str], content: Any
) -> None:
    kizuna.done("put", "--id", "x", *options, "--", text)

    assert kizuna.row("get", "x")["content"] == content


@pytest.mark.parametrize("arguments", [["-"], []])
def test_content_comes_from_the_input_and_text_leaves_as_it_came(kizuna: Runner, arguments: list[str]) -> None:
    kizuna.done("put", *arguments, "--id", "x", given="two\nlines\n")

    assert kizuna.done("get", "x", "--content").stdout == "two\nlines\n"


def test_content_that_is_no_text_is_printed_as_json_in_one_line(kizuna: Runner) -> None:
    kizuna.done("put", "--id", "x", given='{"a":\n [1, "絆"]}')

    assert kizuna.done("get", "x", "--content").stdout == '{"a": [1, "絆"]}\n'


@pytest.mark.parametrize(
    ("line", "given", "told"),
    [
        (["put", "x", "--json-content"], "", "this is no JSON"),
        (["put", "-"], b"\xff", "neither JSON nor text"),
        (["put", "x", "--text", "--json-content"], "", "contradict each other"),
        (["put", "x", "--if-version", "1"], "", "say which by --id"),
        (["put", "x", "--id", "a", "--if-version", "1", "--kind", "state"], "", "--kind is said when an item is new"),
        (["put", "x", "--metadata", "novalue"], "", "there is no '='"),
        (["put", "x", "--priority", "11"], "", "11"),
        (["put", "x", "--kind", "thing"], "", "thing"),
        (["put", "x", "--importance", "2"], "", "2"),
        (["put", "x", "--ttl", "0"], "", "0"),
        (["get", "x", "--json", "--content"], "", "keep one"),
        (["ls", "--priority", "low"], "", "'low' is neither a priority"),
        (["ls", "--priority", "1-"], "", "'1-' is neither"),
        (["ls", "--priority", "5-3"], "", "write 3-5"),
        (["ls", "--all", "--cursor", "x"], "", "keep one"),
        (["rm", "a", "b", "--if-version", "1"], "", "give one ID"),
        (["move", "a"], "", "say which items"),
    ],
)
def test_what_is_wrong_on_the_command_line_is_said_in_one_line(
    kizuna: Runner, line: list[str], given: bytes | str, told: str
) -> None:
    ended = kizuna(*line, given=given)

    assert (ended.exit_code, ended.stdout) == (USAGE, "")
    assert told in ended.stderr.splitlines()[-1]


def test_an_item_that_is_not_there_has_its_exit_code(kizuna: Runner) -> None:
    missing = kizuna("get", "plan")

    assert (missing.exit_code, missing.stdout) == (NOT_FOUND, "")
    assert missing.stderr == "There is no item plan, or it has ended.\n"
    assert kizuna("copy", "plan", "trip-7").exit_code == NOT_FOUND


def test_what_is_there_by_an_id_is_replaced_and_only_if_it_is_as_expected(kizuna: Runner) -> None:
    assert kizuna.row("put", "1", "--id", "plan", "--if-version", "0")["version"] == 1
    assert kizuna.row("put", "2", "--id", "plan", "--priority", "9")["version"] == 2
    changed = kizuna.row("put", "3", "--id", "plan", "--if-version", "2")

    assert (changed["version"], changed["content"], changed["priority"]) == (3, 3, 9)
    for version in ("0", "2", "4"):
        refused = kizuna("put", "x", "--id", "plan", "--if-version", version)
        assert (refused.exit_code, refused.stdout) == (CONFLICT, "")
        assert len(refused.stderr.splitlines()) == 1
    assert kizuna("put", "x", "--id", "nothing", "--if-version", "1").exit_code == NOT_FOUND
    assert kizuna.row("get", "plan")["content"] == 3


def test_what_others_write_can_do_nothing_to_the_terminal(kizuna: Runner) -> None:
    kizuna.done("put", "\x1b[2J\nnext\u202e", "--text", "--id", "x", "--metadata", "k=\x1b[2J")

    for line in (["get", "x"], ["ls"]):
        assert "\x1b[2J" not in kizuna.done(*line).output
        assert "\u202e" not in kizuna.done(*line).output
    assert kizuna.done("get", "x").stdout.splitlines()[-2:] == ["\\x1b[2J", "next\\u202e"]
    assert kizuna.done("get", "x", "--content").stdout == "\x1b[2J\nnext\u202e"


# changing


def test_items_are_touched_and_forgotten_and_those_that_are_not_there_are_named(kizuna: Runner) -> None:
    for id_ in ("a", "b"):
        kizuna.done("put", "x", "--id", id_, "--ttl", "60")
    touched = kizuna("touch", "a", "c", "b", "--ttl", "6000")
    first, second, third = touched.stderr.splitlines()

    assert (touched.exit_code, touched.stdout) == (NOT_FOUND, "")
    assert (first[:14], second[:14]) == ("a ends in 1 h ", "b ends in 1 h ")
    assert third == "There is no item c, or it has ended."
    told = kizuna.row("touch", "a")
    assert told["expires_at"] - told["created_at"] >= 6000
    gone = kizuna("rm", "a", "c", "b")
    assert (gone.exit_code, gone.stderr) == (NOT_FOUND, "Forgot 2.\nThere is no item c, or it has ended.\n")
    assert kizuna.rows("ls") == []


def test_json_has_all_that_is_known_of_an_item(kizuna: Runner) -> None:
    kizuna.done("put", "x", "--id", "a", "--kind", "result", "--cost", "2", "--depends-on", "b", "--generation", "g")
    told = kizuna.row("get", "a")

    assert (told["kind"], told["cost_s"], told["depends_on"], told["generation"]) == ("result", 2, ["b"], "g")
    assert told["ttl_s"] == pytest.approx(told["expires_at"] - told["created_at"], abs=0.01)
    assert {"type", "context", "priority", "content", "metadata", "version", "updated_at"} <= told.keys()
    assert {"sealed", "from_backup"} <= told.keys()


def test_an_item_is_forgotten_only_if_it_is_at_the_expected_version(kizuna: Runner) -> None:
    kizuna.done("put", "x", "--id", "a")

    assert kizuna("rm", "a", "--if-version", "2").exit_code == CONFLICT
    assert kizuna("rm", "a", "--if-version", "1").exit_code == 0


def test_items_move_to_another_context_and_are_copied(kizuna: Runner) -> None:
    for id_ in ("a", "b"):
        kizuna.done("put", f'"{id_}"', "--id", id_)
    assert kizuna.done("move", "a", "b", "trip-8").stderr == "a is in trip-8.\nb is in trip-8.\n"
    assert kizuna.done("copy", "a", "trip-9", "--id", "a9").stdout == "a9\n"

    found = {(row["id"], row["context"], row["content"]) for row in kizuna.rows("ls")}
    assert found == {("a", "trip-8", "a"), ("b", "trip-8", "b"), ("a9", "trip-9", "a")}
    moved = kizuna("move", "a", "c", "trip-9")
    assert (moved.exit_code, moved.stderr.splitlines()[-1]) == (NOT_FOUND, "There is no item c, or it has ended.")


# ls


def ids(rows: list[dict[str, Any]]) -> list[str]:
    return [row["id"] for row in rows]


def test_items_are_listed_in_a_table(kizuna: Runner) -> None:
    kizuna.done("put", "Ana prefers trains", "--id", "a", "--type", "fact", "--context", "trip-7", "--ttl", "600")
    kizuna.done("put", '{"step": 2}', "--id", "b", "--priority", "9", "--ttl", "60")
    head, first, second = kizuna.done("ls").stdout.splitlines()

    assert head.split() == ["ID", "TYPE", "CONTEXT", "PRIORITY", "VERSION", "AGE", "ENDS", "IN", "CONTENT"]
    assert first.split()[:5] == ["a", "fact", "trip-7", "5", "1"]
    assert first.endswith('"Ana prefers trains"')
    assert second.split()[:5] == ["b", "note", "global", "9", "1"]
    assert second.endswith('{"step":2}')
    assert (kizuna.done("ls", "--type", "none").stdout, kizuna.done("ls", "--type", "none").stderr) == (
        "",
        "Nothing of the kind is remembered.\n",
    )


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ([], ["a", "b", "c"]),
        (["--newest"], ["c", "b", "a"]),
        (["--type", "fact"], ["a", "b"]),
        (["--context", "trip"], ["b", "c"]),
        (["--type", "fact", "--context", "trip"], ["b"]),
        (["--priority", "3"], ["b"]),
        (["--priority", "3-5"], ["a", "b"]),
        (["--text", "TRAIN"], ["a", "c"]),
        (["--ends-within", "100"], ["c"]),
        (["--ends-within", "100", "--type", "fact"], []),
    ],
)
def test_filters_have_to_hold_all_together(kizuna: Runner, filters: list[str], found: list[str]) -> None:
    kizuna.done("put", "a train", "--id", "a", "--type", "fact", "--ttl", "600")
    kizuna.done("put", "a boat", "--id", "b", "--type", "fact", "--context", "trip", "--priority", "3", "--ttl", "600")
    kizuna.done("put", "Trains", "--id", "c", "--context", "trip", "--priority", "9", "--ttl", "60")

    assert ids(kizuna.rows("ls", *filters)) == found


def test_pages_follow_each_other_and_all_are_all(kizuna: Runner) -> None:
    for id_ in "abcde":
        kizuna.done("put", id_, "--id", id_)
    first = kizuna("ls", "--limit", "2", "--json")
    cursor = first.stderr.split("--cursor ")[1].split(",")[0]
    second = kizuna.rows("ls", "--limit", "2", "--cursor", cursor)

    assert first.stderr == f"There is more: the same with --cursor {cursor}, or --all.\n"
    assert ids([json.loads(line) for line in first.stdout.splitlines()]) == ["a", "b"]
    assert ids(second) == ["c", "d"]
    assert ids(kizuna.rows("ls", "--all")) == list("abcde")
    assert len(kizuna.done("ls", "--all").stdout.splitlines()) == 6


def test_one_item_that_cannot_be_read_does_not_hide_the_others(
    kizuna: Runner, server: ServerProcess, root: str
) -> None:
    for id_ in "abc":
        kizuna.done("put", "x", "--id", id_, "--metadata", "n=1")
    server.call("HSET", f"{root}:memory:short:item:a", "content", "{broken")
    server.call("HSET", f"{root}:memory:short:item:b", "metadata", "{broken")
    rows = kizuna.rows("ls")

    assert [(row["id"], row["content"], row["metadata"]) for row in rows] == [
        ("a", None, {"n": 1}),
        ("b", "x", {}),
        ("c", "x", {"n": 1}),
    ]
    assert all("is not the JSON it should be" in row["unreadable"] for row in rows[:2])
    assert "unreadable" not in rows[2]
    assert ids(kizuna.rows("ls", "--text", "X")) == ["b", "c"]
    unreadable = kizuna("get", "a")
    assert (unreadable.exit_code, unreadable.stdout) == (1, "")


def test_text_is_found_beside_half_of_a_surrogate_pair_that_others_wrote(
    kizuna: Runner, server: ServerProcess, root: str
) -> None:
    kizuna.done("put", "{}", "--id", "a")
    server.call("HSET", f"{root}:memory:short:item:a", "content", '{"half": "\\ud83d", "whole": "train"}')

    assert ids(kizuna.rows("ls", "--text", "TRAIN")) == ["a"]
    assert ids(kizuna.rows("ls", "--text", "boat")) == []
    assert kizuna.row("get", "a")["content"]["half"] == "\ud83d"
    assert '"\\ud83d"' in kizuna.done("get", "a").stdout
    assert json.loads(kizuna.done("get", "a", "--content").stdout)["half"] == "\ud83d"


# before their time


def test_what_depends_on_something_that_has_changed_ends(kizuna: Runner) -> None:
    kizuna.done("put", "640", "--id", "total", "--depends-on", "prices", "--depends-on", "rates")

    assert kizuna.done("changed", "rates").stderr == "1 item that depended on it has ended.\n"
    assert kizuna("get", "total").exit_code == NOT_FOUND
    assert kizuna.row("changed", "rates", "prices") == {"ended": 0}


def test_raising_a_generation_ends_all_older(kizuna: Runner) -> None:
    kizuna.done("put", "1", "--id", "old", "--generation", "model")
    raised = kizuna.row("raise", "model")
    kizuna.done("put", "1", "--id", "new", "--generation", "model")

    assert (raised["generation"], type(raised["number"])) == ("model", int)
    assert ids(kizuna.rows("ls")) == ["new"]
    told = kizuna.done("raise", "model").stderr
    assert told == f"model is at {raised['number'] + 1} now; what was made of an older one has ended.\n"


def test_sealed_contents_are_shown_to_who_has_the_key_and_not_in_tables(
    with_settings: Callable[..., Runner], server: ServerProcess, root: str
) -> None:
    with_key = with_settings(seal_keys=f"k1:{'A' * 43}=")
    with_key.done("put", "a secret", "--id", "x", "--sealed")
    with_another = with_settings(seal_keys=f"k2:{'B' * 42}A=")

    assert b"a secret" not in server.call("HGET", f"{root}:memory:short:item:x", "content")
    assert with_key.done("get", "x", "--content").stdout == "a secret"
    assert with_key.done("ls").stdout.splitlines()[1].endswith("(sealed)")
    assert with_another("get", "x").exit_code == 1
    row = with_another.row("ls")
    assert (row["content"], row["sealed"]) == (None, True)
    assert "cannot be opened" in row["unreadable"]
    without = with_settings()("get", "x")
    assert without.exit_code == 1
    assert without.stdout == ""
    assert "there are no keys; set memory.seal_keys_file" in without.stderr
