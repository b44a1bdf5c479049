"""Who may call: whoever knows the token, or where there is none, programs of this machine that are no web pages."""

from __future__ import annotations

import hmac
import re
from typing import TYPE_CHECKING

from starlette.requests import Request

from kizuna.memory.rest.problems import problem

if TYPE_CHECKING:
    from starlette.responses import Response
    from starlette.types import ASGIApp, Receive, Scope, Send

# They hold nothing of the memory.
OPEN_PATHS = ("/health", "/openapi.json")

_THIS_MACHINE = re.compile(r"(localhost|127(\.\d{1,3}){3}|\[::1\])(:\d+)?", re.IGNORECASE)


class Guard:
    """An ASGI middleware."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._expected = f"Bearer {token}".encode() if token else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = self._refusal(Request(scope)) if scope["type"] == "http" else None
        await (refusal or self._app)(scope, receive, send)

    def _refusal(self, request: Request) -> Response | None:
        if request.url.path in OPEN_PATHS:
            return None
        if self._expected is None:
            return _without_token(request)
        given = request.headers.get("authorization", "").encode("latin-1")
        # In constant time: how long it takes must not tell how much of it is right.
        if hmac.compare_digest(given, self._expected):
            return None
        return problem(
            401,
            "the token is missing or wrong; send it as Authorization: Bearer …",
            headers={"WWW-Authenticate": 'Bearer realm="kizuna memory"'},
        )


def _without_token(request: Request) -> Response | None:
    """A page in a browser on this machine could reach us, too: under a name that leads here, or from its own."""
    if not _THIS_MACHINE.fullmatch(request.headers.get("host", "")):
        return problem(421, "without a token only localhost is served here; set memory.rest_token")
    if "origin" in request.headers:
        return problem(403, "without a token web pages are not served here; set memory.rest_token")
    return None
