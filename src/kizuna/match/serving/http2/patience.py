"""How much a peer may ask for that costs it nothing: pings, settings, windows, streams that it opens and drops."""

from __future__ import annotations

from collections.abc import Callable

from kizuna.match.serving.http2.faults import ENHANCE_YOUR_CALM, Fault

# Far above what busy clients do: some such frames for each stream.
_MOST = 10_000.0
_BACK_EACH_SECOND = 1_000.0
_BACK_FOR_A_STREAM = 8.0


class Patience:
    """Used up by frames that carry no request, and regained with time and with requests."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._left, self._at = _MOST, now_s()

    def use(self, much: float = 1.0) -> None:
        """Fault when there is none left."""
        self._left -= much
        if self._left < 0:
            self._regain()

    def thank(self) -> None:
        """For a stream that was opened."""
        if self._left < _MOST:
            self._left += _BACK_FOR_A_STREAM

    def _regain(self) -> None:
        now_s = self._now_s()
        self._left = min(self._left + (now_s - self._at) * _BACK_EACH_SECOND, _MOST)
        self._at = now_s
        if self._left < 0:
            raise Fault(ENHANCE_YOUR_CALM, "too many frames that ask for nothing")
