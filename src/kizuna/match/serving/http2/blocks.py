"""Headers that come in several frames. Does no I/O."""

from __future__ import annotations

from kizuna.match.serving.http2.faults import ENHANCE_YOUR_CALM, Fault

MOST_HEADER_BYTES = 16_384
_MOST_CONTINUATIONS = 8


class Block:
    """What has come of them."""

    def __init__(self, stream: int, first: bytes, *, is_last: bool) -> None:
        self.stream, self.is_last = stream, is_last
        self.bytes = first
        self._frames = 0

    def add(self, more: bytes) -> None:
        """Fault if there is no end of it."""
        self.bytes += more
        self._frames += 1
        if len(self.bytes) > MOST_HEADER_BYTES or self._frames > _MOST_CONTINUATIONS:
            raise Fault(ENHANCE_YOUR_CALM, "headers without an end")
