from __future__ import annotations

import logging

import pytest

from kizuna.cli.logs import LineFormatter


@pytest.mark.parametrize(
    ("level", "line"),
    [
        (logging.INFO, "reconnected server=db:6379 after_s=1.5"),
        (logging.WARNING, "warning reconnected server=db:6379 after_s=1.5"),
    ],
)
def test_a_line_is_the_event_and_its_fields(level: int, line: str) -> None:
    fields = {"server": "db:6379", "after_s": 1.5}
    record = logging.makeLogRecord({"levelno": level, "levelname": logging.getLevelName(level), "msg": "reconnected"})
    vars(record).update(fields)

    time, _, rest = LineFormatter().format(record).partition(" ")

    assert time.count(":") == 2
    assert rest == line


def test_a_line_break_in_a_field_stays_in_the_line() -> None:
    record = logging.makeLogRecord({"levelno": logging.INFO, "levelname": "INFO", "msg": "x", "error": "a\nb"})

    assert "\n" not in LineFormatter().format(record)
