"""Histograms, as text and as a picture."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.match.functions.waiting_players import PATIENT

from kizuna.match.simulation.drawing import ASCII, EIGHTHS, blocks_for, draw, rows
from kizuna.match.simulation.histograms import histogram, nice, percent, short
from kizuna.match.simulation.outcome import NOBODY, Outcome, ProfileOutcome, Series
from kizuna.match.simulation.picture.canvas import Canvas, Colour
from kizuna.match.simulation.picture.charts import chart
from kizuna.match.simulation.picture.font import enlarged, glyphs, text_width

values = st.lists(st.floats(0, 1e6), max_size=60)
WHITE, BLACK = Colour(255, 255, 255), Colour(0, 0, 0)


def outcome(origin: str = "arena.toml", **series: list[float]) -> Outcome:
    profile = ProfileOutcome("ranked", "teams", matches=3, tickets=12, players=12, gave_up=1, waiting=2)
    for name, found in series.items():
        setattr(profile, name, Series(found))
    nobody = ProfileOutcome(NOBODY, "", gave_up=4)
    return Outcome(origin, 7, "skill", "party_size", "latency.", {"ranked": profile, NOBODY: nobody}, hours=2)


# histograms


@PATIENT
@given(found=values, bins=st.integers(1, 30))
def test_every_value_is_in_one_bin_and_few_are_beyond(found: list[float], bins: int) -> None:
    made = histogram(found, bins)

    assert made.total == len(found)
    assert 1 <= len(made.counts) <= bins
    assert made.beyond <= len(found) / 100
    assert made.beyond == len([value for value in found if value / made.width >= len(made.counts)])


@PATIENT
@given(least=st.floats(1e-6, 1e9))
def test_a_nice_number_is_the_next_one_that_people_like(least: float) -> None:
    found = nice(least)

    assert least * (1 - 1e-9) <= found <= 2.5 * least
    assert f"{found:e}".partition("e")[0].rstrip("0").rstrip(".") in ("1", "2", "2.5", "5")


def test_bins_can_be_those_of_others() -> None:
    like = [float(number) for number in range(100)]

    assert histogram([1.0, 2.0], 10, like=like).width == histogram(like, 10).width == 10


@pytest.mark.parametrize(
    ("value", "told"),
    [(0.0, "0"), (0.12345, "0.123"), (12.345, "12.3"), (99.96, "100"), (1234.5, "1,234"), (1e6, "1,000,000")],
)
def test_numbers_are_told_with_three_digits(value: float, told: str) -> None:
    assert short(value) == told


def test_something_is_never_told_as_nothing() -> None:
    assert [percent(share) for share in (0, 0.001, 0.01, 0.5, 1)] == ["0 %", "<1 %", "1 %", "50 %", "100 %"]


@PATIENT
@given(found=st.lists(st.floats(0, 1e6), min_size=1), number=st.sampled_from([1, 50, 95, 99, 100]))
def test_a_percentile_is_the_least_value_that_so_many_do_not_exceed(found: list[float], number: int) -> None:
    value = Series(found).percentile(number)

    assert sum(one <= value for one in found) >= len(found) * number / 100
    assert sum(one < value for one in found) < max(len(found) * number / 100, 1)


# text


def test_each_profile_has_its_figures_and_bars() -> None:
    lines = list(draw(outcome(waited_s=[1, 1, 1, 9.0], skill_apart=[50.0]), 100))

    assert lines[:2] == ["ranked: teams", "  12 tickets matched in 3 matches, 1 (7 %) gave up, 2 wait still"]
    assert lines[3].split("  ")[1] == "waited"
    assert lines[3].endswith("skill apart in a match")
    assert "p50 1 s  p95 9 s  p99 9 s  most 9 s" in lines[4]
    [longest] = [line for line in lines if "█" * 24 in line and "75 %" in line]
    assert longest.startswith("  1 s ")
    assert lines[-2] == "no profile takes 4 tickets: 4 gave up, 0 wait still"


def test_where_there_is_no_room_histograms_stand_below_each_other() -> None:
    lines = list(draw(outcome(waited_s=[1.0], skill_apart=[50.0]), 60))

    assert max(map(len, lines)) <= 66
    assert "  waited" in lines
    assert "  skill apart in a match" in lines


@PATIENT
@given(found=st.lists(st.floats(0, 1e6), min_size=1, max_size=30), width=st.integers(20, 200))
def test_any_values_can_be_drawn(found: list[float], width: int) -> None:
    lines = list(draw(outcome(waited_s=found, latency_ms=found), width, blocks=ASCII))

    assert any("#" * 24 in line for line in lines)
    assert not any(mark in line for line in lines for mark in EIGHTHS)


def test_bars_are_drawn_with_what_the_terminal_has() -> None:
    assert [blocks_for(encoding) for encoding in ("utf-8", "ascii", None, "nonsense")] == [EIGHTHS, ASCII, ASCII, ASCII]


def test_several_are_compared_in_a_table() -> None:
    table = list(rows([outcome("a.toml", waited_s=[0.002, 20.0]), outcome("b.toml", latency_ms=[30.0])]))

    assert [row["file"] for row in table] == ["a.toml", "a.toml", "b.toml", "b.toml"]
    assert (table[0]["waited_p50"], table[0]["waited_p95"], table[0]["gave_up"]) == ("2 ms", "20 s", "1 (7 %)")
    assert (table[2]["waited_p50"], table[2]["latency_p95"]) == ("", "30 ms")
    assert table[1]["profile"] == "(none takes them)"


# pictures


def decoded(png: bytes) -> tuple[int, int, list[bytes]]:
    """Width, height and rows, as any reader of PNG would find them."""
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    chunks = dict(chunks_of(png[8:]))
    width, height, *kind = struct.unpack(">IIBBBBB", chunks[b"IHDR"])
    assert kind == [8, 2, 0, 0, 0]
    raw = zlib.decompress(chunks[b"IDAT"])
    stride = 3 * width + 1
    assert len(raw) == height * stride
    found = [raw[start : start + stride] for start in range(0, len(raw), stride)]
    assert {row[0] for row in found} == {0}
    return width, height, [row[1:] for row in found]


def chunks_of(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    while data:
        (length,) = struct.unpack(">I", data[:4])
        name, body = data[4:8], data[8 : 8 + length]
        assert struct.unpack(">I", data[8 + length : 12 + length]) == (zlib.crc32(name + body),)
        yield name, body
        data = data[12 + length :]


def test_wire_format_of_a_picture_of_two_dots() -> None:
    canvas = Canvas(2, 1, WHITE)
    canvas.box(1, 0, 1, 1, Colour(1, 2, 3))

    assert canvas.png()[:33] == bytes.fromhex(
        "89504e470d0a1a0a 0000000d 49484452 00000002 00000001 08 02 00 00 00 7b40e8dd"
    )
    assert decoded(canvas.png()) == (2, 1, [b"\xff\xff\xff\x01\x02\x03"])


@PATIENT
@given(
    box=st.tuples(*[st.integers(-8, 8)] * 4), x=st.integers(-20, 20), y=st.integers(-20, 20), text=st.text(max_size=3)
)
def test_what_is_beyond_the_edge_is_not_seen_and_harms_nothing(
    box: tuple[int, int, int, int], x: int, y: int, text: str
) -> None:
    canvas = Canvas(6, 5, WHITE)
    canvas.box(*box, BLACK)
    canvas.text(x, y, text, BLACK)
    left, top, wide, high = box
    canvas.box(*box, BLACK)
    _, _, found = decoded(canvas.png())

    assert [len(row) for row in found] == [18] * 5
    for down in range(5):
        for right in range(6):
            if left <= right < left + wide and top <= down < top + high:
                assert found[down][3 * right : 3 * right + 3] == b"\0\0\0"


def test_every_character_of_a_keyboard_is_drawn_and_no_two_are_alike() -> None:
    keyboard = {chr(code) for code in range(32, 127)} - set("$^`")
    drawn = glyphs()

    assert keyboard <= drawn.keys()
    assert len({str(drawn[character]) for character in keyboard}) == len(keyboard)
    assert all(len(glyph) == 9 for glyph in drawn.values())
    assert enlarged("é", 2) == enlarged("?", 2)


@pytest.mark.parametrize("scale", [1, 2, 3, 4])
def test_letters_grow_evenly_and_have_smooth_edges(scale: int) -> None:
    glyph = enlarged("A", scale)

    assert (len(glyph), len(glyph[0])) == (9 * scale, 5 * scale)
    assert all(0 <= cover <= 1 for row in glyph for cover in row)
    assert any(0 < cover < 1 for row in glyph for cover in row)
    assert text_width("AA", scale) == 11 * scale
    assert text_width("", scale) == 0


def test_a_chart_shows_a_bar_for_each_bin() -> None:
    png = chart([outcome(waited_s=[1.0, 1.0, 9.0])])
    width, height, found = decoded(png)

    assert width > 1000
    assert height > 400
    blue = bytes((59, 130, 246))
    tallest = [row for row in found if blue * 10 in row]
    assert len(tallest) > 100


def test_profiles_of_one_name_stand_below_each_other_in_one_picture() -> None:
    one = decoded(chart([outcome(waited_s=[1.0])]))
    two = decoded(chart([outcome(waited_s=[1.0]), outcome("b.toml", waited_s=[5.0, 9.0])]))

    assert two[0] == one[0]
    assert two[1] > one[1] + 300


def test_a_chart_of_nothing_is_a_picture_too() -> None:
    assert decoded(chart([outcome()]))[0] > 1000
