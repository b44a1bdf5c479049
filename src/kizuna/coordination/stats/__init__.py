"""Counters and histograms, by the hour and the day."""

from kizuna.coordination.stats.stats import Stats

__all__ = ["Stats"]
