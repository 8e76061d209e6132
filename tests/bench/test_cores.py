"""The shared buckets of the prototype compute what the proxy computes, and outlive the processes that use them."""

import random
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bench.cores import charges
from bench.cores.extension import compiled, loaded
from kafka_quota_proxy.proxy.quota.rate import Rate
from kafka_quota_proxy.proxy.quota.throttle import throttle_time_ms

if TYPE_CHECKING:
    from bench.cores.shared_buckets import Buckets

pytestmark = pytest.mark.kafka  # needs a C compiler

# Reserves 70 bytes as worker 1, and then waits to be killed.
HOLD_70 = """
import sys
from pathlib import Path
from bench.cores.extension import loaded
buckets = loaded(Path(sys.argv[1]))(sys.argv[2])
buckets.join(1)
buckets.admit(0, 70)
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("extension"))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "buckets"


@pytest.fixture
def buckets(library: Path, file: Path) -> "Buckets":
    created = loaded(library)(str(file), create=1)
    created.join(0)
    return created


@pytest.mark.parametrize("seed", range(20))
def test_charge_is_that_of_the_proxy(library: Path, file: Path, seed: int) -> None:
    draw = random.Random(seed)  # noqa: S311
    samples, window_ms = draw.choice([(11, 1_000), (11, 1_000), (2, 300), (30, 50)])
    limit = draw.choice([0.7, 1_000.0, 3_333.3, 1e9])
    shared = loaded(library)(str(file), create=1, limit=limit, samples=samples, window_ms=window_ms)
    shared.join(draw.randrange(8))
    rate = Rate(samples=samples, window_ms=window_ms)
    now_ms = draw.randrange(10**9)
    waits = 0
    for _ in range(3_000):
        now_ms += draw.choice([0, 1, 7, window_ms // 3, window_ms - 1, window_ms, draw.randrange(samples * window_ms)])
        amount = draw.choice([0, 1, round(limit * draw.random()), draw.randrange(10**7)])
        assert shared.has_room(0, amount, now_ms) == (rate.peek(now_ms=now_ms, more=amount) <= limit)

        rate.record(amount, now_ms=now_ms)
        byte_rate, taken_ms = rate.measure(now_ms=now_ms), rate.window_ms(now_ms=now_ms)
        wait_ms = max(0, throttle_time_ms(byte_rate=byte_rate, byte_rate_limit=limit, window_ms=taken_ms))

        assert shared.charge(0, amount, now_ms=now_ms) == wait_ms
        slots, _, total, _, _ = shared.state(0)
        assert (slots, total) == ([tuple(slot) for slot in rate.slots()], rate.total)
        waits += wait_ms > 0
    assert waits or limit == 1e9


@pytest.mark.parametrize("step", charges.STEPS)
def test_process_killed_in_a_charge_leaves_a_whole_charge_or_none(
    library: Path, file: Path, buckets: "Buckets", step: int
) -> None:
    buckets.charge(0, 1)

    assert charges.kill_at_step(library, file, buckets, step) is None

    buckets.charge(0, 1)
    assert buckets.state(0)[1][0][1] == 2
    assert buckets.state(0)[4] == 1
    assert charges.inexact(buckets) is None


def test_charges_of_two_processes_add_up(library: Path, file: Path, buckets: "Buckets") -> None:
    other = charges.Charger(library, file, 1, 100_000)
    other.go()
    buckets.charge_many(0, 1, 100_000)
    other.took_ns()

    assert buckets.state(0)[2] == 200_000
    assert charges.inexact(buckets) is None


def killed_with_70_in_flight(library: Path, file: Path, buckets: "Buckets") -> None:
    command = [sys.executable, "-c", HOLD_70, str(library), str(file)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        assert buckets.reap() == {}  # it lives
        assert buckets.in_flight_of(0, 1) == 70
        process.kill()


def test_any_process_gives_back_what_a_dead_worker_had_in_flight(library: Path, file: Path, buckets: "Buckets") -> None:
    buckets.admit(0, 5)
    killed_with_70_in_flight(library, file, buckets)

    assert buckets.reap() == {1: 70}

    assert buckets.state(0)[3] == 5
    assert buckets.reap() == {}


def test_next_worker_gives_back_what_the_dead_one_had_in_flight(library: Path, file: Path, buckets: "Buckets") -> None:
    killed_with_70_in_flight(library, file, buckets)

    assert loaded(library)(str(file)).join(1) == 70

    assert buckets.state(0)[3] == 0
