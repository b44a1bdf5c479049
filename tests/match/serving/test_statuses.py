from __future__ import annotations

import inspect

import pytest
from grpc import StatusCode

from kizuna import errors
from kizuna.match.serving.statuses import CODE_OF, BadCall, answer_to, status_of


def every_error() -> list[type[errors.KizunaError]]:
    classes = inspect.getmembers(errors, inspect.isclass)
    return [cls for _, cls in classes if issubclass(cls, errors.KizunaError)]


@pytest.mark.parametrize("error", every_error())
def test_every_error_has_a_decided_code(error: type[errors.KizunaError]) -> None:
    assert error in CODE_OF


def test_an_error_of_a_users_own_counts_as_the_class_above_it() -> None:
    class QuotaReached(errors.OutOfMemory):
        pass

    assert status_of(QuotaReached("full", "db", "wait"))[0] is StatusCode.RESOURCE_EXHAUSTED


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (errors.TicketMissing("x"), (StatusCode.NOT_FOUND, "ticket id: x not found")),
        (errors.BackfillMissing("x"), (StatusCode.NOT_FOUND, "Backfill id: x not found")),
        (
            errors.BackfillExpired("update", "x"),
            (StatusCode.UNAVAILABLE, "can not update an expired backfill, id: x"),
        ),
        (BadCall(StatusCode.ALREADY_EXISTS, "in words of others"), (StatusCode.ALREADY_EXISTS, "in words of others")),
    ],
)
def test_errors_are_told_in_the_words_that_callers_know(
    error: errors.KizunaError, told: tuple[StatusCode, str]
) -> None:
    assert status_of(error) == told
    assert answer_to(error, "a call") == told


def test_only_what_was_not_done_may_be_tried_again_by_itself() -> None:
    """Clients repeat UNAVAILABLE unasked; what may have been done must not be done twice."""
    repeated = [error for error, code in CODE_OF.items() if code is StatusCode.UNAVAILABLE]
    unsure = [error for error in repeated if getattr(error, "outcome", "not sent") == "unknown"]

    assert unsure == []


def test_of_our_own_servers_nothing_is_told() -> None:
    for error in every_error():
        if issubclass(error, errors.StoreError) and error is not errors.StoreError:
            assert "db-7" not in status_of(error("what", "db-7:6379", "hint"))[1]
    assert "team-a" not in status_of(errors.TicketsLocked("team-a.", 3))[1]
