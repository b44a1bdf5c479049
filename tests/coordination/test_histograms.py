"""What a histogram promises, for all values."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from kizuna.coordination.days import days_between, hour_at, labels_between, zone_named
from kizuna.coordination.stats.histograms import BOUNDS, WORST_RATIO, Figures, Histogram, bucket_of, read_field
from kizuna.coordination.stats.tallies import all_of, counting, observing
from kizuna.errors import IllegalName, SettingsError, WrongValue

# A machine that is busy is not what is tested.
PATIENT = hypothesis_settings(deadline=None, max_examples=50)
WITHIN = st.floats(BOUNDS[1], BOUNDS[-2])
ANY = st.one_of(st.just(0.0), WITHIN, st.floats(0, 1e300))
ZONES = ("UTC", "Asia/Tokyo", "Europe/Berlin", "America/New_York", "Asia/Kathmandu", "Australia/Lord_Howe")


# histograms


def test_every_bound_is_at_most_the_worst_ratio_above_the_one_before() -> None:
    assert all(1 < after / before <= WORST_RATIO for before, after in pairwise(BOUNDS[1:-1]))


@PATIENT
@given(value=ANY)
def test_every_value_is_in_the_first_bucket_that_is_not_below_it(value: float) -> None:
    bound = float(bucket_of(value).removeprefix("<="))

    assert value <= bound
    assert all(value > other for other in BOUNDS if other < bound)


@PATIENT
@given(parts=st.lists(st.lists(ANY, max_size=20), max_size=6))
def test_merged_histograms_are_the_histogram_of_all(parts: list[list[float]]) -> None:
    merged = Histogram()
    for part in parts:
        merged.merge(Histogram.of(part))
    whole = Histogram.of(value for part in parts for value in part)

    assert (merged.buckets, merged.min, merged.max) == (whole.buckets, whole.min, whole.max)
    assert merged.sum == pytest.approx(whole.sum)


@PATIENT
@given(values=st.lists(WITHIN, min_size=1), percent=st.floats(0, 100))
def test_a_percentile_is_never_below_the_truth_and_at_most_the_worst_ratio_above(
    values: list[float], percent: float
) -> None:
    truth = sorted(values)[max(1, math.ceil(len(values) * percent / 100)) - 1]

    assert truth <= Histogram.of(values).percentile(percent) <= truth * WORST_RATIO


@PATIENT
@given(values=st.lists(ANY, min_size=1))
def test_count_mean_least_and_greatest_are_those_of_the_values(values: list[float]) -> None:
    histogram = Histogram.of(values)

    assert (histogram.count, histogram.min, histogram.max) == (len(values), min(values), max(values))
    assert histogram.mean == pytest.approx(sum(values) / len(values))


def test_nothing_has_no_mean_and_no_percentile() -> None:
    assert math.isnan(Histogram().mean)
    assert math.isnan(Histogram().percentile(50))


@pytest.mark.parametrize("value", [-1, math.nan, math.inf, -math.inf, True, "5", None])
def test_what_is_negative_or_no_number_cannot_be_observed(value: Any) -> None:
    with pytest.raises(WrongValue, match="0 or more"):
        Histogram().observe(value)


def test_a_percentile_beyond_a_hundred_is_refused() -> None:
    with pytest.raises(WrongValue, match="from 0 to 100"):
        Histogram.of([1]).percentile(101)


# fields


@PATIENT
@given(values=st.lists(ANY, min_size=1))
def test_a_histogram_is_read_back_from_its_fields(values: list[float]) -> None:
    histogram = Histogram.of(values)
    fields = {tally.field: tally.value for tally in all_of("took_ms", histogram)}

    assert Figures.read(fields).histograms == {"took_ms": histogram}


def test_one_observation_is_written_like_a_histogram_of_one() -> None:
    assert observing("took_ms", 12.5) == all_of("took_ms", Histogram.of([12.5]))


def test_fields_that_are_no_part_of_a_histogram_are_counters() -> None:
    assert Figures.read({"done": 3, "not a part": 1, "took_ms <=11.31": 2}).counters == {"done": 3, "not a part": 1}
    assert read_field("sum") == ("sum", "")


@pytest.mark.parametrize("name", ["", "a b", "hour", "a\nb", "x" * 257])
def test_names_that_could_be_taken_for_something_else_are_refused(name: str) -> None:
    with pytest.raises(IllegalName):
        counting(name, 1)
    with pytest.raises(IllegalName):
        observing(name, 1)


@pytest.mark.parametrize("by", [math.nan, math.inf, 2**53 + 1, True, "3"])
def test_only_numbers_can_be_added(by: float) -> None:
    with pytest.raises(WrongValue, match="at most 2\\^53"):
        counting("done", by)


# days and hours


@PATIENT
@given(
    now=st.datetimes(datetime(2000, 1, 1), datetime(2037, 1, 1)),  # noqa: DTZ001 - given as UTC below
    zone=st.sampled_from(ZONES),
    into=st.floats(0, 0.999999),
)
def test_within_an_hour_neither_day_nor_label_changes(now: datetime, zone: str, into: float) -> None:
    info = ZoneInfo(zone)
    hour = hour_at(now.replace(tzinfo=UTC).timestamp(), info)
    then = datetime.fromtimestamp(hour.from_s + (hour.until_s - hour.from_s) * into, info)

    assert hour.from_s <= now.replace(tzinfo=UTC).timestamp() < hour.until_s
    assert (then.date(), then.strftime("%Y-%m-%dT%H")) == (hour.day, hour.label)


@pytest.mark.parametrize(
    ("zone", "moment", "day", "label"),
    [
        ("UTC", "2025-06-19T23:59:59+00:00", date(2025, 6, 19), "2025-06-19T23"),
        ("UTC", "2025-06-20T00:00:00+00:00", date(2025, 6, 20), "2025-06-20T00"),
        ("Asia/Tokyo", "2025-06-19T14:59:59+00:00", date(2025, 6, 19), "2025-06-19T23"),
        ("Asia/Tokyo", "2025-06-19T15:00:00+00:00", date(2025, 6, 20), "2025-06-20T00"),
        ("Asia/Kathmandu", "2025-06-19T18:15:00+00:00", date(2025, 6, 20), "2025-06-20T00"),
        ("Europe/Berlin", "2025-03-30T00:59:59+00:00", date(2025, 3, 30), "2025-03-30T01"),
        ("Europe/Berlin", "2025-03-30T01:00:00+00:00", date(2025, 3, 30), "2025-03-30T03"),
        ("Europe/Berlin", "2025-10-26T00:30:00+00:00", date(2025, 10, 26), "2025-10-26T02"),
        ("Europe/Berlin", "2025-10-26T01:30:00+00:00", date(2025, 10, 26), "2025-10-26T02"),
    ],
)
def test_days_and_hours_begin_where_they_do_in_the_zone(zone: str, moment: str, day: date, label: str) -> None:
    hour = hour_at(datetime.fromisoformat(moment).timestamp(), ZoneInfo(zone))

    assert (hour.day, hour.label) == (day, label)


@pytest.mark.parametrize(
    ("day", "hours"), [("2025-06-19", 24), ("2025-03-30", 23), ("2025-10-26", 24)], ids=["plain", "spring", "autumn"]
)
def test_a_day_has_each_label_once_and_one_less_in_spring(day: str, hours: int) -> None:
    zone = ZoneInfo("Europe/Berlin")
    first = datetime.fromisoformat(day).replace(tzinfo=zone)
    last = (first + timedelta(days=1)).astimezone(UTC) - timedelta(minutes=1)
    labels = labels_between(first, last, zone)

    assert len(labels) == len(set(labels)) == hours
    assert labels == sorted(labels)


def test_both_ends_of_a_range_belong_to_it() -> None:
    assert list(days_between(date(2024, 2, 28), date(2024, 3, 1))) == [
        date(2024, 2, 28), date(2024, 2, 29), date(2024, 3, 1),
    ]  # fmt: skip
    assert list(days_between(date(2024, 3, 1), date(2024, 2, 28))) == []


def test_a_zone_that_is_not_known_is_named() -> None:
    with pytest.raises(SettingsError, match="Asia/Atlantis: this system knows no such time zone"):
        zone_named("Asia/Atlantis")


def test_utc_needs_no_installed_time_zones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kizuna.coordination.days.ZoneInfo", _knows_none)

    assert zone_named("UTC") is UTC
    with pytest.raises(SettingsError, match="tzdata"):
        zone_named("Asia/Tokyo")


def _knows_none(name: str) -> ZoneInfo:
    raise ZoneInfoNotFoundError(name)
