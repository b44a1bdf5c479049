"""Errors as RFC 9457 has them: `application/problem+json`, with the sentence as the detail."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from starlette.exceptions import HTTPException
from starlette.responses import Response

from kizuna import errors

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request

PROBLEM_TYPE = "application/problem+json"

# The nearest class above counts for those that are not named.
STATUS_OF: dict[type[errors.KizunaError], int] = {
    errors.KizunaError: 500,
    errors.IllegalName: 422,
    errors.WrongValue: 422,
    errors.CannotSeal: 422,
    errors.TooLarge: 413,
    errors.ItemMissing: 404,
    errors.ContextMissing: 404,
    errors.ItemExists: 409,
    errors.ContextExists: 409,
    errors.VersionConflict: 409,
    errors.OutcomeForgotten: 409,
    errors.EventsGone: 410,
    errors.StoreError: 503,
    errors.OutcomeUnknown: 504,
    errors.Refused: 500,
    errors.PermissionDenied: 503,
    errors.NotPrimary: 503,
    errors.OutOfMemory: 507,
    errors.StorageFull: 507,
}
_SHOWN = (str, int, float)


class BadCall(Exception):
    """A request that is answered with a problem before it reaches the memory."""

    def __init__(self, status: int, detail: str, error: errors.KizunaError | None = None) -> None:
        super().__init__(status, detail, error)
        self.status, self.detail, self.error = status, detail, error


def problem(status: int, detail: str, *, headers: Mapping[str, str] | None = None, **facts: Any) -> Response:
    body = {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status, "detail": detail, **facts}
    return Response(json.dumps(body), status, headers, PROBLEM_TYPE)


def status_of(error: errors.KizunaError) -> int:
    return next(STATUS_OF[cls] for cls in type(error).__mro__ if cls in STATUS_OF)


def facts_of(error: errors.KizunaError) -> dict[str, Any]:
    """Its name, and the numbers and texts that it carries: a version, a cursor, whether the server may have done it."""
    facts = {name: value for name, value in vars(error).items() if isinstance(value, _SHOWN)}
    if isinstance(error, errors.StoreError):
        facts["outcome"] = error.outcome
    return {"error": type(error).__name__, "facts": facts}


async def answer_kizuna_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, errors.KizunaError)  # noqa: S101 - registered for those
    status = status_of(error)
    # Whoever repeats at once makes it worse.
    headers = {"Retry-After": "1"} if status == 503 else None
    return problem(status, str(error), headers=headers, **facts_of(error))


async def answer_many(_: Request, error: Exception) -> Response:
    """Of several steps that were taken together some failed: the others are done."""
    assert isinstance(error, ExceptionGroup)  # noqa: S101 - registered for those
    known = [one for one in error.exceptions if isinstance(one, errors.KizunaError)]
    if len(known) < len(error.exceptions):
        raise error
    details = "; ".join(map(str, known))
    return problem(status_of(known[0]), f"{error.message}: {details}", **facts_of(known[0]))


async def answer_bad_call(_: Request, error: Exception) -> Response:
    assert isinstance(error, BadCall)  # noqa: S101 - registered for those
    facts = facts_of(error.error) if error.error is not None else {}
    return problem(error.status, error.detail, **facts)


async def answer_http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 - registered for those
    details = {
        404: f"there is no {request.url.path}; /openapi.json lists what there is",
        405: f"{request.method} cannot be done with {request.url.path}",
    }
    return problem(error.status_code, details.get(error.status_code, error.detail), headers=error.headers)


async def answer_surprise(_: Request, error: Exception) -> Response:
    return problem(500, "something went wrong here; the log of the server has the rest", error=type(error).__name__)
