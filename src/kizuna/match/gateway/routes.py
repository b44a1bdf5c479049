"""Which call a request is, and in which dialect it is made."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from grpc import StatusCode

from kizuna.match.gateway.codes import refused
from kizuna.match.gateway.connect import CONNECT_CALLS, CONNECT_STREAMS, connect_refusal
from kizuna.match.gateway.grpc_web import GRPC_WEB
from kizuna.match.gateway.rest import RestCall, RestStream, plain_refusal

if TYPE_CHECKING:
    from kizuna.match.gateway.dialects import CallDialect, StreamDialect
    from kizuna.match.gateway.exchange import Answer, Exchange
    from kizuna.match.serving.rpcs import Rpc

    AnyDialect = CallDialect | StreamDialect

_CALLS: Mapping[str, CallDialect] = {**CONNECT_CALLS, **GRPC_WEB}
_STREAMS: Mapping[str, StreamDialect] = {**CONNECT_STREAMS, **GRPC_WEB}

_WITH_BODY = ("POST", "PATCH", "PUT")
_PLACE = re.compile(r"\{(\w+)\}")


class NotServed(Exception):
    """There is no such call, or not like this. Never leaves the gateway."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer)
        self.answer = answer


class _Route(NamedTuple):
    method: str
    pattern: re.Pattern[str]
    rpc: Rpc


class Routes:
    def __init__(self, rpcs: Iterable[Rpc]) -> None:
        rpcs = list(rpcs)
        self._by_name = {rpc.path: rpc for rpc in rpcs}
        self._services = {rpc.service for rpc in rpcs}
        self._by_path = [_Route(rpc.http[0], _pattern(rpc.http[1]), rpc) for rpc in rpcs if rpc.http]

    def find(self, exchange: Exchange) -> tuple[Rpc, AnyDialect]:
        """NotServed, in the words of whatever the path looks like."""
        service = exchange.path[1:].partition("/")[0]
        return self._named(exchange) if service in self._services else self._resource(exchange)

    def _named(self, exchange: Exchange) -> tuple[Rpc, AnyDialect]:
        path, rpc = exchange.path, self._by_name.get(exchange.path)
        if rpc is None:
            raise _not_served(StatusCode.UNIMPLEMENTED, f"there is no {path} here", 404)
        if exchange.method != "POST":
            raise _not_served(StatusCode.UNKNOWN, f"{path} is called by POST", 405, allow="POST")
        dialects: Mapping[str, AnyDialect] = _STREAMS if rpc.streams else _CALLS
        dialect = dialects.get(exchange.content_type)
        if dialect is None:
            known = ", ".join(dialects)
            text = f"{path} cannot be called by {exchange.content_type or 'no Content-Type'}; it can by {known}"
            raise _not_served(StatusCode.UNKNOWN, text, 415, accept_post=known)
        return rpc, dialect

    def _resource(self, exchange: Exchange) -> tuple[Rpc, AnyDialect]:
        matches = [(route, route.pattern.fullmatch(exchange.path)) for route in self._by_path]
        here = [(route, found.groupdict()) for route, found in matches if found]
        for route, in_path in here:
            if route.method == exchange.method:
                kind = RestStream if route.rpc.streams else RestCall
                return route.rpc, kind(in_path, has_body=route.method in _WITH_BODY)
        # As grpc-gateway has it: of its codes, this comes nearest to a method that is not allowed.
        code, text = (StatusCode.UNIMPLEMENTED, "Method Not Allowed") if here else (StatusCode.NOT_FOUND, "Not Found")
        raise NotServed(plain_refusal(refused(code, text)))


def _not_served(code: StatusCode, text: str, status: int, **headers: str) -> NotServed:
    return NotServed(connect_refusal(refused(code, text, status, **headers)))


def _pattern(path: str) -> re.Pattern[str]:
    """Of a path as in /tickets/{ticket_id}: a name in braces stands for anything but a slash."""
    return re.compile("".join(_part(part) for part in re.split(r"(\{\w+\})", path)))


def _part(part: str) -> str:
    place = _PLACE.fullmatch(part)
    return f"(?P<{place[1]}>[^/]*)" if place else re.escape(part)
