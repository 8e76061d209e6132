"""Tests the section ``fair_call_queue``, with every key of Hadoop's guide, and its faults."""

from pathlib import Path

from kafka_quota_proxy.config.fair_call_queue import (
    CallQueueImpl,
    CostProvider,
    CostWeights,
    FairCallQueue,
    IdentityProvider,
    SchedulerImpl,
    WithinLevel,
)
from kafka_quota_proxy.config.load import load, load_bytes
from kafka_quota_proxy.config.model import Listener
from tests.config.test_load import LISTENERS, faults, loaded
from tests.support.cases import each_case

# The keys in the table of Hadoop's guide.
HADOOPS_KEYS = {
    "backoff.enable": "true",
    "callqueue.impl": "fair",
    "callqueue.capacity.weights": "[1, 2, 3]",
    "scheduler.impl": "decay",
    "scheduler.priority.levels": "3",
    "faircallqueue.multiplexer.weights": "[30, 20, 10]",
    "identity-provider.impl": "user",
    "cost-provider.impl": "weighted",
    "decay-scheduler.period-ms": "1000",
    "decay-scheduler.decay-factor": "0.25",
    "decay-scheduler.thresholds": "[20, 40]",
    "decay-scheduler.backoff.responsetime.enable": "true",
    "decay-scheduler.backoff.responsetime.thresholds": "[1s, 2000ms, 3s]",
    "decay-scheduler.metrics.top.user.count": "5",
    "decay-scheduler.service-users": "[hdfs, hive]",
    "weighted-cost.lockshared": "11",
    "weighted-cost.lockexclusive": "12",
    "weighted-cost.handler": "13",
    "weighted-cost.lockfree": "14",
    "weighted-cost.response": "15",
    "weighted-cost.queue": "16",
    "weighted-cost.enqueue": "17",
    "weighted-cost.lockwait": "18",
    "weighted-cost.processing": "19",
}
OUR_KEYS = {
    "callqueue.capacity": "600",
    "callqueue.within-level": "fifo",
    "decay-scheduler.utilisation-floor": "0.75",
    "identities.max": "50",
    "max_in_flight": "adaptive",
}


def with_section(section: str) -> str:
    return f"{LISTENERS}fair_call_queue:\n" + "".join(f"  {line}\n" for line in section.splitlines())


def listener(section: str) -> Listener:
    return loaded(with_section(section)).config.listeners[0]


def queue(section: str) -> FairCallQueue:
    found = listener(section).fair_call_queue
    assert found is not None
    return found


def only_fault(section: str) -> str:
    (fault,) = faults(with_section(section))
    return fault


def warnings(section: str) -> list[str]:
    return [str(warning) for warning in loaded(with_section(section)).warnings]


# -- valid sections --


def test_without_the_section_there_is_no_queue() -> None:
    assert loaded(LISTENERS).config.listeners[0].fair_call_queue is None


def test_a_section_without_a_key_is_hadoops_defaults() -> None:
    assert queue("{}") == FairCallQueue()


def test_every_key_reaches_the_model() -> None:
    section = "\n".join(f"{key}: {value}" for key, value in (HADOOPS_KEYS | OUR_KEYS).items())

    assert warnings(section) == []
    assert queue(section) == FairCallQueue(
        callqueue_impl=CallQueueImpl.FAIR,
        scheduler_impl=SchedulerImpl.DECAY,
        levels=3,
        capacity=600,
        capacity_weights=(1, 2, 3),
        multiplexer_weights=(30, 20, 10),
        within_level=WithinLevel.FIFO,
        backoff_enable=True,
        identity_provider=IdentityProvider.USER,
        cost_provider=CostProvider.WEIGHTED,
        cost_weights=CostWeights(
            lockshared=11,
            lockexclusive=12,
            handler=13,
            lockfree=14,
            response=15,
            queue=16,
            enqueue=17,
            lockwait=18,
            processing=19,
        ),
        period_ms=1_000,
        decay_factor=0.25,
        thresholds=(0.2, 0.4),
        utilisation_floor=0.75,
        backoff_responsetime_enable=True,
        backoff_responsetime_thresholds_ms=(1_000, 2_000, 3_000),
        top_user_count=5,
        service_users=frozenset({"hdfs", "hive"}),
        max_identities=50,
        max_in_flight=None,
    )


def test_hadoops_worked_example_is_accepted() -> None:
    found = queue(
        """\
callqueue.impl: fair
callqueue.capacity.weights: [7, 3]
scheduler.impl: decay
scheduler.priority.levels: 2
faircallqueue.multiplexer.weights: [99, 1]
decay-scheduler.thresholds: [90]"""
    )

    assert found == FairCallQueue(
        levels=2,
        capacity_weights=(7, 3),
        multiplexer_weights=(99, 1),
        thresholds=(0.9,),
        backoff_responsetime_thresholds_ms=(10_000, 20_000),
    )


def test_the_example_shows_the_defaults() -> None:
    text = Path("config/example.yaml").read_text(encoding="utf-8")
    lines = text[text.index("# fair_call_queue:\n") :].splitlines()
    section = [line.removeprefix("# ") for line in lines[: lines.index("")]]

    found = load_bytes((LISTENERS + "\n".join(section) + "\n").encode(), file="f.yaml")

    assert len(section) > 30
    # Thresholds are whole per cents in a file.
    assert found.config.listeners[0].fair_call_queue == queue("decay-scheduler.thresholds: [13, 25, 50]")


def test_a_listener_has_the_queue_of_the_file_or_none() -> None:
    text = """\
listeners:
  - {name: a, bind: 'h:1', upstream: 'k:1'}
  - {name: b, bind: 'h:3', upstream: 'k:1', fair_call_queue: false}
fair_call_queue: {scheduler.priority.levels: 2}
"""

    a, b = (one.fair_call_queue for one in loaded(text).config.listeners)

    assert a is not None
    assert a.levels == 2
    assert b is None


# -- faults --


@each_case(
    "section, fault",
    [
        ("callqueue.impl: org.apache.hadoop.ipc.FairCallQueue", "callqueue.impl: must be fair or fifo, not 'org."),
        ("identity-provider.impl: own_identities:team_of", "must be user or user-client-id, not 'own_identities"),
        ("scheduler.priority.levels: 101", "must be a whole number from 1 to 100, though Hadoop takes more"),
        ("callqueue.capacity.weights: []", "capacity.weights: is empty; give at least one element"),
        ("decay-scheduler.thresholds: []", "thresholds: has 0 thresholds; give 3, one for each level but the last"),
        ("callqueue.capacity.weights: [1, 2, 3]", "capacity.weights: has 3 weights; give 4, one for each level"),
        ("callqueue.capacity: 3", "callqueue.capacity: 3, divided by 1,1,1,1, leaves 1 of 4 levels without a place"),
        (
            "{callqueue.capacity: 4, callqueue.capacity.weights: [7, 3, 1, 1]}",
            "callqueue.capacity: 4, divided by 7,3,1,1, leaves 2 of 4 levels without a place; "
            "give callqueue.capacity of 12 or more, or more even weights",
        ),
        (
            "callqueue.capacity.weights: [100000, 1, 1, 1]",
            "callqueue.capacity.weights: 1024, divided by 100000,1,1,1, leaves 3 of 4 levels without a place",
        ),
        ("faircallqueue.multiplexer.weights: [3]", "multiplexer.weights: has 1 weight; give 4, one for each level"),
        ("decay-scheduler.period-ms: 5s", "must be a whole number from 1"),
        ("decay-scheduler.decay-factor: 0", "decay-factor: must be a number above 0 and below 1, such as 0.5"),
        ("decay-scheduler.thresholds: [13, 25, 100]", "thresholds[2]: must be a whole number from 1 to 99, a share"),
        ("decay-scheduler.thresholds: [13, 13, 50]", "must ascend, each above the one before, not [13, 13, 50]"),
        (
            "decay-scheduler.backoff.responsetime.thresholds: [10s]",
            "responsetime.thresholds: has 1 duration; give 4, one for each level",
        ),
        ("decay-scheduler.backoff.responsetime.thresholds: [1s, 2s, 3s, soon]", "'soon' is not a duration"),
        ("decay-scheduler.service-users: [7]", "must be a user's name; YAML reads 7 as a number, so quote it"),
        ("decay-scheduler.utilisation-floor: 1.1", "must be a number from 0 to 1"),
        ("identities.max: 0", "must be a whole number from 1 to 2147483647, or null for any number"),
        ("weighted-cost.lockshared: -1\ncost-provider.impl: weighted", "lockshared: must be a whole number from 0"),
        ("max_in_flight: 0", "must be adaptive, or a whole number from 1"),
        ("max_in_flight.min: 1", "max_in_flight.min: no longer exists: an adaptive number is from 4 to 500; remove"),
        ("callqueue.capasity: 3", "unknown key; did you mean callqueue.capacity?"),
    ],
)
def test_a_faulty_section_is_refused(section: str, fault: str) -> None:
    found = only_fault(section)

    assert found.startswith(("f.yaml:3: fair_call_queue.", "f.yaml:4: fair_call_queue."))
    assert fault in found


@each_case(
    "key, value, advice",
    [
        (
            "mode",
            "hadoop",
            "callqueue.within-level: fifo, decay-scheduler.utilisation-floor: 0 and identities.max: null",
        ),
        ("callqueue.overflow.trigger.failover", "false", "remove it, and write backoff.enable: true"),
        ("decay-scheduler.backoff.responsetime.min-calls", "1", "10 answers in a period"),
        ("decay-scheduler.average", "hadoop", "write half of decay-scheduler.backoff.responsetime.thresholds"),
        ("faircallqueue.priority-levels", "2", "write scheduler.priority.levels"),
        ("faircallqueue.decay-scheduler.thresholds", "[1]", "write decay-scheduler.thresholds"),
    ],
)
def test_a_removed_key_is_one_fault_that_says_what_to_write(key: str, value: str, advice: str) -> None:
    found = only_fault(f"{key}: {value}")

    assert found.startswith(f"f.yaml:3: fair_call_queue.{key}: ")
    assert advice in found


def test_a_listener_has_no_settings_of_its_own() -> None:
    (fault,) = faults("listeners: [{name: a, bind: 'h:1', upstream: 'k:1', fair_call_queue: {}}]\n")

    assert fault.startswith("f.yaml:1: listeners[0].fair_call_queue: must be false, for no queue at this listener")


def test_faulty_levels_do_not_lead_to_faults_of_lists() -> None:
    assert "from 1 to 100" in only_fault("scheduler.priority.levels: many\ndecay-scheduler.thresholds: [10, 20]")


def test_backoff_by_response_time_alone_is_a_warning() -> None:
    assert warnings("decay-scheduler.backoff.responsetime.enable: true") == [
        "f.yaml:3: fair_call_queue.decay-scheduler.backoff.responsetime.enable: warning: has no effect without "
        "backoff.enable: true"
    ]


def test_a_plain_queue_needs_no_place_for_each_level() -> None:
    assert queue("{callqueue.impl: fifo, callqueue.capacity: 3}").capacity == 3


def test_the_listener_of_the_example_has_no_queue() -> None:
    assert [one.fair_call_queue for one in load("config/example.yaml").config.listeners] == [None] * 3
