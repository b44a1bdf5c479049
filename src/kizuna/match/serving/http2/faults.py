"""What may go wrong between two ends of HTTP/2, with the numbers that it is told by."""

from __future__ import annotations

NO_ERROR, PROTOCOL_ERROR, INTERNAL_ERROR, FLOW_CONTROL_ERROR = 0x0, 0x1, 0x2, 0x3
STREAM_CLOSED, FRAME_SIZE_ERROR, REFUSED_STREAM, CANCEL = 0x5, 0x6, 0x7, 0x8
COMPRESSION_ERROR, ENHANCE_YOUR_CALM = 0x9, 0xB


class Fault(Exception):
    """The connection cannot go on: the peer is told why, and it is closed."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(code, text)
        self.code, self.text = code, text


class StreamFault(Exception):
    """One stream cannot go on; the others do."""

    def __init__(self, stream: int, code: int) -> None:
        super().__init__(stream, code)
        self.stream, self.code = stream, code
