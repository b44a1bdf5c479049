"""One request that a server has claimed: run the handler, write the answer."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from kizuna.coordination.handlers import Failed, reason_of, text_of
from kizuna.errors import TooLarge, Undecodable
from kizuna.store.taking import Taker
from kizuna.units.values import checked_size, encoded

if TYPE_CHECKING:
    from kizuna.units.incoming import Incoming
    from kizuna.units.serving import Serving


class Execution(Taker):
    """As a taker, it is told what became of the write of its answer. What most never change are attributes of the
    class: there are very many executions, and each is short."""

    began = claimed_at = 0.0
    """When it was claimed, and when the claim was last known to be ours, on the monotonic clock."""
    raw: bytes
    task: asyncio.Task[None] | None = None
    answer: tuple[bytes, bytes, int] | None = None
    """Key, value and life in ms, once there is one; there is never a second."""
    answered_at = 0.0
    written: asyncio.Future[None] | None = None
    """For who waits until the answer can be read."""
    is_ended = False
    """The handler has."""
    is_settled = False
    """There is nothing more to be written."""
    is_lost = False
    """The claim has gone to another process: whatever comes of this is not written."""
    has_lapsed = False
    """The claim had ended, and is ours again: another process may have had it, and answered."""
    is_asked_again = False
    """The same request was set once more after it was answered."""

    def __init__(self, serving: Serving, request: Incoming) -> None:
        self.serving, self.request = serving, request

    def settle(self, error: BaseException | None) -> None:
        self.is_settled = True
        if self.written is not None and not self.written.done():
            self.written.set_result(None) if error is None else self.written.set_exception(error)

    async def run(self) -> None:
        """Call the handler, and hand over what comes of it."""
        serving = self.serving
        handler, codec = serving.handler, serving.codec
        if serving.is_stopped:
            serving.ended(self, _told(asyncio.CancelledError()), is_error=True)
            return
        try:
            data = codec.decode(self.raw)
            if handler.is_async and not handler.takes_extra:
                result = await handler.function(data)
            else:
                result = await self._call(data)
            # Not if it was answered by hand: what a handler returns then is nobody's.
            body = b"" if self.answer is not None else encoded(codec, result, serving.largest_bytes, "the reply")
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:
            # All of them: a request whose handler ended without a word would be waited for in vain.
            serving.ended(self, _told(error)[: serving.largest_bytes], is_error=True)
        else:
            serving.ended(self, body, is_error=False)

    # -- told by the wire -------------------------------------------------------------------------------

    def set_result(self, reply: Any) -> None:
        self.serving.answered(self)

    def set_exception(self, error: BaseException) -> None:
        self.serving.not_written(self, error)

    # -- inside -----------------------------------------------------------------------------------------

    async def _call(self, data: Any) -> Any:
        serving = self.serving
        handler = serving.handler
        asked = {"request": Request(self, data)} if handler.takes_extra else {}
        if handler.is_async:
            return await handler.function(data, **asked)
        call = partial(contextvars.copy_context().run, called, handler.function, data, asked)
        return await asyncio.get_running_loop().run_in_executor(serving.threads, call)


class Request:
    """What a handler may know of the request besides its data, and an answer by hand."""

    def __init__(self, execution: Execution, data: Any) -> None:
        self._execution = execution
        request = execution.request
        self.caller, self.id, self.path = request.caller.decode(), request.id.decode(), request.key.decode()
        self.raw, self.data = execution.raw, data

    async def ends_in_s(self) -> float | None:
        """How long the request itself still lives; None if it has no end. The caller may wait longer, or shorter."""
        lives_ms = int(await self._execution.serving.store.call("PTTL", self._execution.request.key))
        return None if lives_ms == -1 else max(0.0, lives_ms / 1000)

    async def reply(self, value: Any) -> None:
        """Answer now, and return when the answer can be read; what the handler returns afterwards is not sent."""
        serving = self._execution.serving
        await self._answer(encoded(serving.codec, value, serving.largest_bytes, "the reply"), is_error=False)

    async def fail(self, body: bytes | str) -> None:
        """Answer with an error: whoever asked gets RequestFailed with these bytes."""
        raw = body.encode() if isinstance(body, str) else bytes(body)
        await self._answer(checked_size(raw, self._execution.serving.largest_bytes, "the error"), is_error=True)

    async def _answer(self, raw: bytes, *, is_error: bool) -> None:
        execution = self._execution
        if execution.answer is not None:
            raise RuntimeError(f"request {self.path} is answered already")
        execution.written = asyncio.get_running_loop().create_future()
        execution.serving.answer(execution, raw, is_error=is_error)
        await execution.written


def called(function: Callable[..., Any], data: Any, asked: Mapping[str, Any]) -> Any:
    """In a thread."""
    try:
        return function(data, **asked)
    except StopIteration as error:
        # That one cannot pass through a future: the request would never end.
        raise Failed(reason_of(error)) from error


def _told(error: BaseException) -> bytes:
    """What whoever asked gets to read."""
    if isinstance(error, asyncio.CancelledError):
        # Told to stop, or the handler awaited something that was cancelled.
        text = "CancelledError: the handler was cancelled before it had an answer"
    elif isinstance(error, Failed):
        text = text_of(error)
    elif isinstance(error, Undecodable | TooLarge):
        text = f"{type(error).__name__}: {error}"
    else:
        text = reason_of(error)
    return text.encode(errors="replace")
