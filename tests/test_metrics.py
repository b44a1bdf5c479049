from __future__ import annotations

import math
import subprocess
import sys
from bisect import bisect_left

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from kizuna.errors import WrongValue
from kizuna.metrics import LATENCY_BOUNDS_S, Histogram, Measure, Metrics


def samples(metrics: Metrics) -> dict[tuple[str, tuple[str, ...]], float]:
    families = text_string_to_metric_families(metrics.page()[0].decode())
    return {
        (sample.name, tuple(sample.labels.values())): sample.value for family in families for sample in family.samples
    }


def test_sources_are_read_when_a_page_is_asked_for_and_not_before() -> None:
    jobs = 0
    metrics = Metrics(lambda: [Measure("counter", "kizuna_jobs_total", "Jobs run.", jobs)])

    jobs = 3
    assert samples(metrics)["kizuna_jobs_total", ()] == 3
    jobs = 5
    assert samples(metrics)["kizuna_jobs_total", ()] == 5


def test_measures_of_one_name_are_one_family_and_keep_their_labels() -> None:
    metrics = Metrics()
    metrics.add(lambda: [Measure("gauge", "kizuna_size_bytes", "Size.", n, {"server": f"s{n}"}) for n in (1, 2)])

    page = metrics.page()[0].decode()

    assert page.count("# TYPE kizuna_size_bytes gauge") == 1
    assert (samples(metrics)["kizuna_size_bytes", ("s1",)], samples(metrics)["kizuna_size_bytes", ("s2",)]) == (1, 2)


def test_two_in_one_process_do_not_mix() -> None:
    one = Metrics(lambda: [Measure("gauge", "kizuna_a", "", 1)])
    other = Metrics(lambda: [Measure("gauge", "kizuna_b", "", 1)])

    assert ("kizuna_b", ()) not in samples(one)
    assert ("kizuna_a", ()) not in samples(other)


@pytest.mark.skipif(sys.platform != "linux", reason="prometheus_client reads /proc")
def test_the_process_tells_of_itself() -> None:
    assert samples(Metrics())["process_open_fds", ()] > 0


def test_prometheus_client_is_not_imported_before_the_first_page() -> None:
    code = (
        "import sys, kizuna.metrics, kizuna.probes; kizuna.metrics.Metrics(); print('prometheus_client' in sys.modules)"
    )

    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)

    assert ended.stdout == "False\n"


# histograms

BOUNDS = (0.5, 1, 2.5)
SECONDS = st.floats(0, 100)


def test_a_histogram_counts_what_is_up_to_each_bound() -> None:
    histogram = Histogram(BOUNDS)
    for value in (0, 0.5, 0.6, 1, 2, 2.5, 2.6, 1_000):
        histogram.observe(value)

    assert histogram.counts == [2, 2, 2, 2]
    assert histogram.count == 8
    assert histogram.sum == pytest.approx(1_009.2)


def test_latencies_are_told_apart_from_a_quarter_of_a_millisecond_to_a_minute() -> None:
    assert (LATENCY_BOUNDS_S[0], LATENCY_BOUNDS_S[-1]) == (0.00025, 60)
    assert list(LATENCY_BOUNDS_S) == sorted(set(LATENCY_BOUNDS_S))
    assert Histogram().bounds is LATENCY_BOUNDS_S


def test_a_histogram_is_scraped_with_cumulative_counts() -> None:
    histogram = Histogram(BOUNDS)
    for value in (0.25, 0.75, 2, 2, 9):
        histogram.observe(value)
    took = Measure("histogram", "kizuna_took_seconds", "How long it took.", histogram)

    page = Metrics(lambda: [took]).page()[0].decode()
    assert [line for line in page.splitlines() if "kizuna_took" in line] == [
        "# HELP kizuna_took_seconds How long it took.",
        "# TYPE kizuna_took_seconds histogram",
        'kizuna_took_seconds_bucket{le="0.5"} 1.0',
        'kizuna_took_seconds_bucket{le="1.0"} 2.0',
        'kizuna_took_seconds_bucket{le="2.5"} 4.0',
        'kizuna_took_seconds_bucket{le="+Inf"} 5.0',
        "kizuna_took_seconds_count 5.0",
        "kizuna_took_seconds_sum 14.0",
    ]


def test_histograms_of_one_name_are_one_family_and_keep_their_labels() -> None:
    one, other = Histogram(BOUNDS), Histogram(BOUNDS)
    one.observe(0.25)
    metrics = Metrics(
        lambda: [
            Measure("histogram", "kizuna_took_seconds", "", one, {"unit": "one"}),
            Measure("histogram", "kizuna_took_seconds", "", other, {"unit": "other"}),
        ]
    )

    scraped = samples(metrics)
    assert metrics.page()[0].decode().count("# TYPE kizuna_took_seconds histogram") == 1
    assert scraped["kizuna_took_seconds_count", ("one",)] == 1
    assert scraped["kizuna_took_seconds_count", ("other",)] == 0
    assert scraped["kizuna_took_seconds_bucket", ("+Inf", "one")] == 1


def test_the_stricter_readers_of_openmetrics_take_a_histogram_too() -> None:
    histogram = Histogram()
    histogram.observe(0.003)
    metrics = Metrics(lambda: [Measure("histogram", "kizuna_took_seconds", "How long it took.", histogram)])
    page, content_type = metrics.page("application/openmetrics-text; version=1.0.0")

    assert content_type.startswith("application/openmetrics-text")
    read = openmetrics.text_string_to_metric_families(page.decode())  # type: ignore[no-untyped-call]
    families = {family.name: family for family in read}
    counts = {s.labels["le"]: s.value for s in families["kizuna_took_seconds"].samples if "le" in s.labels}
    assert (counts["0.0025"], counts["0.005"], counts["60.0"], counts["+Inf"]) == (0, 1, 1, 1)


@given(values=st.lists(SECONDS, max_size=50))
@settings(deadline=None)
def test_every_value_is_in_the_buckets_of_all_bounds_that_are_not_below_it(values: list[float]) -> None:
    histogram = Histogram(BOUNDS)
    for value in values:
        histogram.observe(value)

    scraped = samples(Metrics(lambda: [Measure("histogram", "h", "", histogram)]))
    for bound in (*BOUNDS, math.inf):
        le = "+Inf" if bound == math.inf else str(float(bound))
        assert scraped["h_bucket", (le,)] == sum(value <= bound for value in values)
    assert scraped["h_count", ()] == len(values)
    assert scraped["h_sum", ()] == pytest.approx(sum(values))


@given(values=st.lists(st.floats(0, LATENCY_BOUNDS_S[-1]), min_size=1), q=st.floats(0, 1))
@settings(deadline=None)
def test_a_quantile_is_in_the_bucket_of_the_value_that_it_stands_for(values: list[float], q: float) -> None:
    histogram = Histogram()
    for value in values:
        histogram.observe(value)
    truth = sorted(values)[max(1, math.ceil(q * len(values))) - 1]
    bucket = bisect_left(LATENCY_BOUNDS_S, truth)

    lower = LATENCY_BOUNDS_S[bucket - 1] if bucket else 0
    assert lower <= histogram.quantile(q) <= LATENCY_BOUNDS_S[bucket]


def test_a_quantile_is_estimated_within_its_bucket() -> None:
    histogram = Histogram((10, 20, 30))
    for value in (*[15] * 50, *[25] * 50):
        histogram.observe(value)

    assert [histogram.quantile(q) for q in (0, 0.25, 0.5, 0.75, 1)] == [10, 15, 20, 25, 30]


def test_beyond_the_last_bound_a_quantile_is_that_bound_and_of_nothing_it_is_nothing() -> None:
    histogram = Histogram((10,))
    assert math.isnan(histogram.quantile(0.5))

    histogram.observe(99)
    assert histogram.quantile(0.5) == 10
    with pytest.raises(WrongValue, match="from 0 to 1"):
        histogram.quantile(50)
