from __future__ import annotations

import pytest

from kizuna.cli.exit_codes import CONFLICT, NOT_FOUND, USAGE
from kizuna.testing import ServerProcess
from kizuna.testing.commands import Runner


@pytest.fixture(autouse=True)
def trip(kizuna: Runner) -> None:
    kizuna.done("contexts", "create", "Trip to Kyoto", "--id", "trip-7", "--type", "trip", "--metadata", "who=Ana")


def test_a_context_that_was_made_is_listed_and_shown(kizuna: Runner) -> None:
    kizuna.done("put", "x", "--context", "trip-7")
    head, line = kizuna.done("contexts").stdout.splitlines()

    assert head.split() == ["ID", "NAME", "TYPE", "ACTIVE", "ITEMS", "VERSION", "AGE", "ENDS", "IN", "AT", "END"]
    assert line.split()[:7] == ["trip-7", "Trip", "to", "Kyoto", "trip", "yes", "1"]
    assert line.endswith("delete")
    told = kizuna.row("contexts", "get", "trip-7")
    assert (told["name"], told["metadata"], told["items"]) == ("Trip to Kyoto", {"who": "Ana"}, 1)
    record = kizuna.done("contexts", "get", "trip-7").stdout
    assert "its items end with it" in record
    assert '{"who": "Ana"}' in record


def test_a_context_that_cannot_be_read_hides_no_other(kizuna: Runner, server: ServerProcess, root: str) -> None:
    kizuna.done("contexts", "create", "x", "--id", "another")
    server.call("HSET", f"{root}:memory:context:another", "metadata", "{oops")

    spoilt, trip = kizuna.rows("contexts")
    assert (spoilt["id"], spoilt["metadata"], trip["metadata"]) == ("another", {}, {"who": "Ana"})
    assert "is not the JSON it should be" in spoilt["problem"]
    assert "is not the JSON it should be" in kizuna.done("contexts", "get", "another").stdout


def test_json_has_all_that_is_known_of_a_context(kizuna: Runner) -> None:
    told = kizuna.row("contexts", "get", "trip-7")

    assert told["ttl_s"] == 3600
    assert {"id", "name", "type", "active", "metadata", "version", "created_at", "updated_at"} <= told.keys()
    assert {"expires_at", "at_end", "from_backup", "items"} <= told.keys()


def test_its_id_is_printed_when_it_is_made_and_how_long_it_lives(kizuna: Runner) -> None:
    made = kizuna.done("contexts", "create", "x", "--ttl", "1800")
    other = kizuna.done("contexts", "create", "y", "--inactive")

    assert made.stderr == "It lives for 30 min 0 s, and longer while it is used.\n"
    assert other.stderr == "It lives for 1 h 0 min.\n"
    assert kizuna.row("contexts", "get", made.stdout.strip())["type"] == "session"
    assert kizuna("contexts", "create", "z", "--id", "trip-7").exit_code == CONFLICT


def test_without_a_command_contexts_are_listed_with_the_same_options(kizuna: Runner) -> None:
    kizuna.done("contexts", "create", "x", "--id", "idle", "--inactive")

    for words in (["contexts"], ["contexts", "ls"]):
        assert [row["id"] for row in kizuna.rows(*words)] == ["idle", "trip-7"]
        assert [row["id"] for row in kizuna.rows(*words, "--active")] == ["trip-7"]
        assert [row["id"] for row in kizuna.rows(*words, "--inactive")] == ["idle"]
        assert [row["id"] for row in kizuna.rows(*words, "--type", "trip")] == ["trip-7"]
    first = kizuna("contexts", "--limit", "1")
    cursor = first.stderr.split("--cursor ")[1].rstrip(".\n")
    assert [row["id"] for row in kizuna.rows("contexts", "--cursor", cursor)] == ["trip-7"]
    assert "kizuna memory contexts create" in kizuna.done("contexts", "-h").stdout


def test_a_context_is_changed_and_only_if_it_is_as_expected(kizuna: Runner) -> None:
    changed = kizuna.done("contexts", "update", "trip-7", "--name", "Trip to Nara", "--at-end", "leave")

    assert changed.stderr == "trip-7 is at version 2.\n"
    told = kizuna.row("contexts", "get", "trip-7")
    assert (told["name"], told["type"], told["at_end"]) == ("Trip to Nara", "trip", "leave")
    assert kizuna("contexts", "update", "trip-7", "--name", "x", "--if-version", "1").exit_code == CONFLICT
    nothing = kizuna("contexts", "update", "trip-7", "--if-version", "2")
    assert (nothing.exit_code, "nothing to change" in nothing.stderr) == (USAGE, True)


def test_it_is_activated_and_deactivated(kizuna: Runner) -> None:
    assert kizuna.done("contexts", "deactivate", "trip-7").stderr.startswith("trip-7 ends at ")
    assert kizuna.row("contexts", "get", "trip-7")["active"] is False
    assert kizuna.done("contexts", "activate", "trip-7").stderr == "trip-7 lives longer by being used.\n"
    assert kizuna.row("contexts", "touch", "trip-7")["active"] is True


@pytest.mark.parametrize(("items", "found"), [("delete", []), ("leave", ["global"])])
def test_a_context_that_is_ended_takes_its_items_along_or_leaves_them(
    kizuna: Runner, items: str, found: list[str]
) -> None:
    kizuna.done("put", "x", "--context", "trip-7")

    assert kizuna.done("contexts", "rm", "trip-7", "--items", items).stderr == "trip-7 has ended.\n"
    assert [row["context"] for row in kizuna.rows("ls")] == found
    assert kizuna.done("contexts").stderr == "There are no contexts of the kind; items without one are in `global`.\n"


@pytest.mark.parametrize("verb", ["get", "activate", "deactivate", "touch", "rm"])
def test_a_context_that_is_not_there_has_its_exit_code(kizuna: Runner, verb: str) -> None:
    missing = kizuna("contexts", verb, "nowhere")

    assert (missing.exit_code, missing.stdout) == (NOT_FOUND, "")
    assert "no context" in missing.stderr
