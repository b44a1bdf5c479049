"""How a command in the foreground shows what the library logs: one line on stderr, the fields behind the event."""

from __future__ import annotations

import logging

# What every record has; whatever else it has was given as a field.
_PLAIN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_NOWHERE = logging.NullHandler()


class LineFormatter(logging.Formatter):
    """`04:12:31 warning connection lost server=127.0.0.1:3710 reason=the server closed the connection`"""

    def __init__(self) -> None:
        super().__init__("{asctime} {message}", "%H:%M:%S", style="{")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        fields = [f"{name}={value}" for name, value in vars(record).items() if name not in _PLAIN]
        level = [record.levelname.lower()] if record.levelno != logging.INFO else []
        time, _, event = super().formatMessage(record).partition(" ")
        # A field may quote what a peer has sent: it must not look like a line of ours.
        return " ".join([time, *level, event, *fields]).replace("\n", " ")


def keep_logs_back() -> None:
    """For commands that end: what went wrong is in their own message, and Python would print bare warnings besides."""
    logging.getLogger("kizuna").addHandler(_NOWHERE)


def show_logs() -> None:
    """For commands that stay: everything from `info` on. Only the command line configures logging."""
    handler = logging.StreamHandler()
    handler.setFormatter(LineFormatter())
    log = logging.getLogger("kizuna")
    log.addHandler(handler)
    log.setLevel(logging.INFO)
