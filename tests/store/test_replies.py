"""What the server's error replies become."""

from __future__ import annotations

import pytest

from kizuna.errors import (
    NotPrimary,
    OutOfMemory,
    PermissionDenied,
    Refused,
    SignInRefused,
    StorageFull,
    StoreError,
)
from kizuna.store.replies import did_not_run, translate


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("OOM command not allowed when used memory > 'maxmemory'.", OutOfMemory),
        ("MISCONF Errors writing to the AOF file: No space left on device", StorageFull),
        ("READONLY You can't write against a read only replica.", NotPrimary),
        ("LOADING Redis is loading the dataset in memory", NotPrimary),
        ("MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.", NotPrimary),
        ("NOREPLICAS Not enough good replicas to write.", NotPrimary),
        ("CLUSTERDOWN The cluster is down", NotPrimary),
        ("NOPERM User app has no permissions to run the 'get' command", PermissionDenied),
        ("ERR ACL failure in script: User app has no permissions", PermissionDenied),
        ("NOPERM ACL failure in script: User app has no permissions", PermissionDenied),
        ("ERR The user executing the script can't access at least one of the keys mentioned", PermissionDenied),
        ("ERR The user executing the script can't run this command or subcommand", PermissionDenied),
        ("WRONGPASS invalid username-password pair or user is disabled.", SignInRefused),
        ("NOAUTH Authentication required.", SignInRefused),
        ("WRONGTYPE Operation against a key holding the wrong kind of value", Refused),
        ("ERR unknown command", Refused),
        ("", Refused),
    ],
)
def test_a_reply_becomes_the_error_that_it_means(text: str, kind: type[StoreError]) -> None:
    error = translate(text, "here:1")

    assert type(error) is kind
    assert error.what == text
    assert error.server == "here:1"
    assert error.hint


@pytest.mark.parametrize(
    "text",
    [
        "OOM command not allowed",
        "WRONGTYPE Operation against a key",
        "ERR syntax error",
        "NOPERM …",
        "MISCONF …",
        "NOSCRIPT …",
        "BUSYGROUP …",
        # What scripts may say, after they have written.
        "BUSY somebody has it",
        "LOADING the truck",
        "MOVED house",
    ],
)
def test_what_may_have_run_or_will_not_pass_by_itself_is_not_tried_again(text: str) -> None:
    assert not did_not_run(translate(text, "here:1"))


@pytest.mark.parametrize(
    "text",
    [
        "LOADING Redis is loading the dataset in memory",
        "LOADING Valkey is loading the dataset in memory",
        "READONLY You can't write against a read only replica.",
        "READONLY You can't write against a read only replica. script: 1a2b, on @user_script:1.",
        "MOVED 3999 127.0.0.1:6381",
        "MOVED 3999 :6381",
        "ASK 3999 ::1:6381",
        "TRYAGAIN Multiple keys request during rehashing of slot",
        "CLUSTERDOWN The cluster is down",
        "CLUSTERDOWN Hash slot not served",
        "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
        "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
    ],
)
def test_what_the_server_did_not_run_is_tried_again(text: str) -> None:
    assert did_not_run(translate(text, "here:1"))
