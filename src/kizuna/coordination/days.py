"""Days and hours in a time zone. This module does no I/O.

An hour is known by its label, `2025-06-19T13`. In autumn, when the clock goes back, two hours have one label and are
counted together; in spring one label is left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from kizuna.errors import SettingsError

_LABEL = "%Y-%m-%dT%H"
# The server chooses among them by its own clock, which may be another than ours.
_DAYS_BACK, _DAYS_ON = 2, 3


class Hour(NamedTuple):
    """A stretch of time, in seconds since the epoch, in which neither the day nor the hour changes."""

    from_s: int
    until_s: int
    day: date
    label: str


def zone_named(name: str) -> tzinfo:
    if name == "UTC":
        # The default, also where no time zones are installed, as in some containers.
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise SettingsError(
            f"coordination.time_zone = {name}: this system knows no such time zone; the package tzdata has all"
        ) from error


def hour_at(now_s: float, zone: tzinfo) -> Hour:
    """The stretch around this moment. A quarter of an hour at most: there are zones that are shifted by one, and
    clocks are set forward and back at a quarter."""
    from_s = int(now_s // 900) * 900
    local = datetime.fromtimestamp(from_s, zone)
    return Hour(from_s, from_s + 900, local.date(), local.strftime(_LABEL))


def label_at(now_s: float, zone: tzinfo) -> str:
    return hour_at(now_s, zone).label


def days_between(first: date, last: date) -> Iterator[date]:
    return (first + timedelta(days=number) for number in range((last - first).days + 1))


def labels_between(first: datetime, last: datetime, zone: tzinfo) -> list[str]:
    """The labels of all hours from the one that `first` lies in to that of `last`, each once, in order."""
    if last < first:
        return []
    # In steps of half an hour, since a zone may be shifted by one.
    count = int((last - first) / timedelta(minutes=30))
    moments = [first.astimezone(UTC) + timedelta(minutes=30) * number for number in range(count + 1)]
    return list(dict.fromkeys(moment.astimezone(zone).strftime(_LABEL) for moment in [*moments, last]))


def midnights(now_s: float, zone: tzinfo) -> list[int]:
    """The beginnings of the days around this moment, in ms since the epoch, in order."""
    today = datetime.fromtimestamp(now_s, zone).date()
    days = (today + timedelta(days=number) for number in range(-_DAYS_BACK, _DAYS_ON + 1))
    # A set, since a zone that crosses the date line leaves out a day.
    return sorted({beginning_of(day, zone) for day in days})


def beginning_of(day: date, zone: tzinfo) -> int:
    """The first moment of the day, in ms. Where clocks are set forward at midnight, that is one o'clock; where they are
    set back over it, and it comes twice, it is the first one."""
    return round(datetime(day.year, day.month, day.day, tzinfo=zone).timestamp() * 1000)
