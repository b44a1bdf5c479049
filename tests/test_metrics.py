from __future__ import annotations

import subprocess
import sys

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kizuna.metrics import Measure, Metrics


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

    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=20)

    assert ended.stdout == "False\n"
