"""The model behind docs/scaling.md: formula and simulation agree where they know the same, and differ elsewhere."""

import math
from dataclasses import replace

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from tools.scaling import GB, JOBS, MB, TB, Cluster, Job, Logs, cores_to_keep_up, formula, main, simulate, size

PLAIN = Job("plain", 100 * MB, 0.0, 0.0)
ONE_LOG = Logs(brokers=1, bytes_each=100 * GB, slice_bytes=1 * GB)


def test_one_core_reads_at_its_rate() -> None:
    alone = Cluster(executors=1, cores=1, start_seconds=0)
    assert formula(PLAIN, ONE_LOG, alone).seconds == pytest.approx(1000)
    assert simulate(PLAIN, ONE_LOG, alone) == pytest.approx(1000, rel=0.01)


@pytest.mark.parametrize("cores", [2, 5, 10, 50])
def test_cores_divide_the_work(cores: int) -> None:
    cluster = Cluster(executors=1, cores=cores, start_seconds=0)
    assert formula(PLAIN, ONE_LOG, cluster).seconds == pytest.approx(1000 / cores)
    assert simulate(PLAIN, ONE_LOG, cluster) == pytest.approx(1000 / cores, rel=0.02)


def test_more_cores_than_slices_are_idle() -> None:
    wide = Cluster(executors=1000, cores=1, start_seconds=0)
    assert formula(PLAIN, ONE_LOG, wide).seconds == pytest.approx(10)
    assert simulate(PLAIN, ONE_LOG, wide) == pytest.approx(10, rel=0.01)


def test_the_disk_of_a_broker_is_the_end() -> None:
    cluster = Cluster(executors=10, cores=10, source_bytes_per_second=500 * MB, start_seconds=0)
    found = formula(PLAIN, ONE_LOG, cluster)
    assert found.narrowest == "source"
    assert found.seconds == pytest.approx(200)
    assert simulate(PLAIN, ONE_LOG, cluster) == pytest.approx(200, rel=0.02)


def test_more_brokers_are_more_disks() -> None:
    cluster = Cluster(executors=10, cores=10, source_bytes_per_second=500 * MB, start_seconds=0)
    logs = Logs(brokers=10, bytes_each=10 * GB, slice_bytes=1 * GB)
    assert formula(PLAIN, logs, cluster).seconds == pytest.approx(20)
    assert simulate(PLAIN, logs, cluster) == pytest.approx(20, rel=0.1)


def test_network_and_target_count_what_is_written_too() -> None:
    job = replace(PLAIN, output_share=1.0)
    narrow = Cluster(executors=2, cores=8, network_bytes_per_second=100 * MB, start_seconds=0)
    found = formula(job, ONE_LOG, narrow)
    assert found.narrowest == "network"
    assert found.seconds == pytest.approx(1000)
    assert simulate(job, ONE_LOG, narrow) == pytest.approx(1000, rel=0.05)
    full = Cluster(executors=2, cores=8, target_bytes_per_second=200 * MB, start_seconds=0)
    found = formula(job, ONE_LOG, full)
    assert found.narrowest == "target"
    assert found.seconds == pytest.approx(500)
    assert simulate(job, ONE_LOG, full) == pytest.approx(500, rel=0.02)


def test_the_last_wave_is_seen_by_the_simulation_alone() -> None:
    """101 slices on 100 cores take two waves; on the average of the formula it is one and a bit."""
    logs = Logs(brokers=1, bytes_each=101 * GB, slice_bytes=1 * GB)
    cluster = Cluster(executors=100, cores=1, start_seconds=0)
    assert formula(PLAIN, logs, cluster).seconds == pytest.approx(10.1)
    assert simulate(PLAIN, logs, cluster) == pytest.approx(20, rel=0.01)


def test_short_slices_pay_for_their_tasks_long_ones_for_stragglers() -> None:
    job = replace(PLAIN, task_seconds=0.5)
    cluster = Cluster(executors=10, cores=1, start_seconds=0)
    short, middle, long = (
        simulate(job, replace(ONE_LOG, slice_bytes=each), cluster, straggling=0.1)
        for each in (10 * MB, 500 * MB, 10 * GB)
    )
    assert middle < short
    assert middle < long


@given(
    brokers=st.integers(1, 4),
    gigabytes=st.integers(1, 20),
    executors=st.integers(1, 6),
    cores=st.integers(1, 4),
    disk=st.sampled_from([math.inf, 300 * MB]),
    network=st.sampled_from([math.inf, 200 * MB]),
)
def test_the_simulation_is_never_faster_than_the_formula(
    brokers: int, gigabytes: int, executors: int, cores: int, disk: float, network: float
) -> None:
    logs = Logs(brokers, gigabytes * GB, slice_bytes=GB)
    cluster = Cluster(executors, cores, network, disk, start_seconds=1)
    assert simulate(PLAIN, logs, cluster) >= formula(PLAIN, logs, cluster).seconds * 0.98


def test_sizes_are_read_as_they_are_sold() -> None:
    assert size("5TB") == 5 * TB
    assert size("1.5 GB") == 1_500_000_000
    assert size("128MiB") == 128 * MB
    with pytest.raises(Exception, match="not a size"):
        size("many")


def test_cores_for_a_stream() -> None:
    assert cores_to_keep_up(PLAIN, 86_400 * 100 * MB, share_of_time=1.0) == 1
    assert cores_to_keep_up(PLAIN, 86_400 * 100 * MB, share_of_time=0.5) == 2


def test_the_command_shows_every_job() -> None:
    done = CliRunner().invoke(main, ["--log", "100GB", "--brokers", "2"])
    assert done.exit_code == 0, done.output
    assert [line.split()[0] for line in done.output.splitlines()[1:]] == list(JOBS)
    assert CliRunner().invoke(main, ["--log", "much"]).exit_code == 2
