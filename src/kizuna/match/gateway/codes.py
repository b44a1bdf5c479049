"""What a call ended with, in the words of HTTP and of Connect."""

from __future__ import annotations

from dataclasses import dataclass

from grpc import StatusCode

# As grpc-gateway has them, and Connect.
HTTP_STATUS: dict[StatusCode, int] = {
    StatusCode.OK: 200,
    StatusCode.CANCELLED: 499,
    StatusCode.UNKNOWN: 500,
    StatusCode.INVALID_ARGUMENT: 400,
    StatusCode.DEADLINE_EXCEEDED: 504,
    StatusCode.NOT_FOUND: 404,
    StatusCode.ALREADY_EXISTS: 409,
    StatusCode.PERMISSION_DENIED: 403,
    StatusCode.RESOURCE_EXHAUSTED: 429,
    StatusCode.FAILED_PRECONDITION: 400,
    StatusCode.ABORTED: 409,
    StatusCode.OUT_OF_RANGE: 400,
    StatusCode.UNIMPLEMENTED: 501,
    StatusCode.INTERNAL: 500,
    StatusCode.UNAVAILABLE: 503,
    StatusCode.DATA_LOSS: 500,
    StatusCode.UNAUTHENTICATED: 401,
}


@dataclass(frozen=True)
class Failure:
    code: StatusCode
    text: str

    @property
    def number(self) -> int:
        """That of gRPC: 5 for NOT_FOUND."""
        number: int = self.code.value[0]
        return number

    @property
    def http_status(self) -> int:
        return HTTP_STATUS[self.code]

    @property
    def connect_name(self) -> str:
        return "canceled" if self.code is StatusCode.CANCELLED else self.code.name.lower()


class Refused(Exception):
    """A request that never becomes a call. Never leaves the gateway."""

    def __init__(self, failure: Failure, status: int | None = None, headers: tuple[tuple[str, str], ...] = ()) -> None:
        super().__init__(failure, status, headers)
        self.failure = failure
        self.status = failure.http_status if status is None else status
        self.headers = headers


def refused(code: StatusCode, text: str, status: int | None = None, **headers: str) -> Refused:
    """Headers by their names, with _ for -."""
    named = tuple((name.replace("_", "-"), value) for name, value in headers.items())
    return Refused(Failure(code, text), status, named)
