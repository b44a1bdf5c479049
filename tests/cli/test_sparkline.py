"""Numbers as a line of bars."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from kizuna.cli.sparkline import ASCII, BLOCKS, GAP, bars_for, fitted, sparkline

# A machine that is busy is not what is tested.
PATIENT = hypothesis_settings(deadline=None)
VALUES = st.lists(st.one_of(st.none(), st.floats(allow_nan=False, allow_infinity=False)), max_size=200)


@pytest.mark.parametrize(
    ("values", "width", "line"),
    [
        ([], 10, ""),
        ([1, 2, 3, 4, 5, 6, 7, 8], 10, "▁▂▃▄▅▆▇█"),
        ([5, 5, 5], 10, "▁▁▁"),
        ([0, None, 10], 10, "▁ █"),
        ([None, None], 10, "  "),
        ([-1, 0], 10, "▁█"),
        ([1, 1, 9, 9], 2, "▁█"),
        ([1, 2], 0, "▁"),
        ([-1.7e308, 0, 1.7e308], 10, "▁▅█"),
        ([0, 1.7e308, 1.7e308], 2, "▁█"),
        ([0, 1.7976931348623157e308, 1.7976931348623157e308, 1.7976931348623157e308], 1, "▁"),
    ],
)
def test_lines_look_like_this(values: list[float | None], width: int, line: str) -> None:
    assert sparkline(values, width) == line


@PATIENT
@given(values=VALUES, width=st.integers(1, 60))
def test_a_line_is_never_wider_than_told_and_has_gaps_only_where_there_is_nothing(
    values: list[float | None], width: int
) -> None:
    line = sparkline(values, width)

    assert len(line) == min(width, len(values))
    assert set(line) <= {*BLOCKS, GAP}
    if len(values) <= width:
        assert [bar == GAP for bar in line] == [value is None for value in values]


@PATIENT
@given(values=st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=60))
def test_a_greater_value_never_has_a_lower_bar(values: list[float]) -> None:
    bars = [BLOCKS.index(bar) for bar in sparkline(values, 60)]
    by_value = sorted(zip(values, bars, strict=True))

    assert [bar for _, bar in by_value] == sorted(bars)


@PATIENT
@given(values=VALUES, width=st.integers(1, 60))
def test_what_is_fitted_lies_between_the_least_and_the_greatest(values: list[float | None], width: int) -> None:
    present = [value / 1e10 for value in values if value is not None]
    shrunk = fitted([None if value is None else value / 1e10 for value in values], width)
    slack = 1e-9 * max(map(abs, present), default=0)

    assert all(min(present) - slack <= value <= max(present) + slack for value in shrunk if value is not None)


@pytest.mark.parametrize(
    ("encoding", "bars"), [("utf-8", BLOCKS), ("ascii", ASCII), ("latin-1", ASCII), (None, ASCII), ("nonsense", ASCII)]
)
def test_a_terminal_without_blocks_gets_plain_characters(encoding: str | None, bars: str) -> None:
    assert bars_for(encoding) == bars
    assert len(bars) == 8
