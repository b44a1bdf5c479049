"""Rpcs as methods that take and give bytes: parsed, counted, and with the status that each error stands for."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, cast

from google.protobuf.message import DecodeError, Message
from grpc import StatusCode

from kizuna.match.serving import reflection
from kizuna.match.serving.http2.calls import Method
from kizuna.match.serving.http2.messages import Ended
from kizuna.match.serving.statuses import BadCall, answer_to

if TYPE_CHECKING:
    from kizuna.match.serving.call_counts import CallCount
    from kizuna.match.serving.reflection import Reflect
    from kizuna.match.serving.rpcs import Rpc


def method_of(rpc: Rpc, count: CallCount) -> Method:
    if rpc.streams:
        return Method(_answering_many(rpc, count), gives_many=True, is_endless=rpc.endless)
    return Method(_answering_once(rpc, count))


def reflecting(reflect: Reflect) -> Method:
    """Endless: tools keep their stream of questions open."""

    async def answer(raw_questions: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        async for answered in reflect(_questions(raw_questions), None):
            yield answered.SerializeToString()

    return Method(answer, takes_many=True, gives_many=True, is_endless=True)


async def _questions(raw_questions: AsyncIterator[bytes]) -> AsyncIterator[Message]:
    async for raw in raw_questions:
        try:
            yield reflection.REQUEST.FromString(raw)
        except DecodeError as error:
            raise Ended(StatusCode.INVALID_ARGUMENT.value[0], "what was sent is no question") from error


def _answering_once(rpc: Rpc, count: CallCount) -> Callable[[bytes], Awaitable[bytes]]:
    call = cast("Callable[[Message], Awaitable[Message]]", rpc.call)

    async def answer(raw: bytes) -> bytes:
        began, code = count.begin(), StatusCode.CANCELLED
        try:
            response = await call(_parsed(rpc, raw))
            code = StatusCode.OK
            return response.SerializeToString()
        except Exception as error:
            code, text = answer_to(error, rpc.path)
            raise _ended(code, text) from error
        finally:
            count.end(code, began)

    return answer


def _answering_many(rpc: Rpc, count: CallCount) -> Callable[[bytes], AsyncIterator[bytes]]:
    call = cast("Callable[[Message], AsyncGenerator[Message, None]]", rpc.call)

    async def answer(raw: bytes) -> AsyncIterator[bytes]:
        began, code = count.begin(), StatusCode.CANCELLED
        try:
            # Closed when the caller leaves between two responses, and not whenever the garbage is collected.
            async with aclosing(call(_parsed(rpc, raw))) as responses:
                async for response in responses:
                    yield response.SerializeToString()
            code = StatusCode.OK
        except Exception as error:
            code, text = answer_to(error, rpc.path)
            raise _ended(code, text) from error
        finally:
            count.end(code, began)

    return answer


def _parsed(rpc: Rpc, raw: bytes) -> Message:
    try:
        return rpc.request.FromString(raw)
    except DecodeError as error:
        name = rpc.request.DESCRIPTOR.full_name
        raise BadCall(StatusCode.INVALID_ARGUMENT, f"what was sent is no {name}") from error


def _ended(code: StatusCode, text: str) -> Ended:
    return Ended(code.value[0], text)
