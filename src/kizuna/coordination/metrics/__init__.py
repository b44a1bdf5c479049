"""Figures that go up and down: the newest value and the last ones."""

from kizuna.coordination.metrics.history import MetricHistory, Sample
from kizuna.coordination.metrics.sampler import Sampler

__all__ = ["MetricHistory", "Sample", "Sampler"]
