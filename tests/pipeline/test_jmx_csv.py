"""The lines are those that JmxTool of Kafka 4.3 printed."""

import pytest

from kafka_quota_proxy.pipeline.client_metrics import RATE, THROTTLE, ClientMetric, Measured
from kafka_quota_proxy.pipeline.jmx_csv import FormatError, readings

ALICE = ClientMetric(Measured("produce", RATE), "alice", "etl")
ODD = ClientMetric(Measured("fetch", THROTTLE), "", 'my:app "1", x=*?')
CSV = r"""Trying to connect to JMX url: service:jmx:rmi:///jndi/rmi://127.0.0.1:26842/jmxrmi

time,"1795891963915"
kafka.server:type=Fetch,client-id="my:app \"1\", x=\*\?":throttle-time,"NaN"
kafka.server:type=Produce,user=alice,client-id=etl:byte-rate,"14737.719384253358"
kafka.server:type=Produce:queue-size,"0.0"
time,"1795891964972"
kafka.server:type=Fetch,client-id="my:app \"1\", x=\*\?":throttle-time,"12.5"
kafka.server:type=Produce,user=alice,client-id=etl:byte-rate,"1.0E7"
"""
NAMES = [
    "time",
    r'kafka.server:type=Fetch,client-id="my:app \"1\", x=\*\?":throttle-time',
    "kafka.server:type=Produce,user=alice,client-id=etl:byte-rate",
    "kafka.server:type=Produce:queue-size",
]
ORIGINAL = (
    ",".join(f'"{name}"' for name in NAMES)
    + "\n1795891963915,NaN,14737.719384253358,0.0\n1795891964972,12.5,1.0E7,0.0\n"
)
TSV = CSV.replace(',"1', "\t1").replace(',"N', "\tN").replace(',"0', "\t0").replace('"\n', "\n")


@pytest.mark.parametrize("text", [CSV, ORIGINAL, TSV], ids=["csv", "original", "tsv"])
def test_each_format_has_the_same_readings(text: str) -> None:
    first, second = readings(text.splitlines(keepends=True))

    assert (first.at_ms, second.at_ms) == (1795891963915, 1795891964972)
    assert first.values[1] == (ALICE, 14737.719384253358)
    assert str(first.values[0]) == str((ODD, float("nan")))
    assert second.values == [(ODD, 12.5), (ALICE, 1e7)]


@pytest.mark.parametrize("text", [CSV, ORIGINAL], ids=["csv", "original"])
def test_a_file_may_have_the_output_of_many_runs(text: str) -> None:
    later = text.replace("alice", "bob").replace("179589", "179590")

    users = [
        metric.user for reading in readings((text + later).splitlines(keepends=True)) for metric, _ in reading.values
    ]

    assert users == ["", "alice", "", "alice", "", "bob", "", "bob"]


def test_a_line_that_was_cut_off_is_left_out() -> None:
    cut = CSV[: CSV.rindex("0E7")]

    (_, last) = readings(cut.splitlines(keepends=True))

    assert last.values == [(ODD, 12.5)]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (
            'time,"2026.11.28 18:49:46"\n',
            "1: the time '2026.11.28 18:49:46' is not in milliseconds; run JmxTool without",
        ),
        (CSV.replace("1.0E7", "ten"), "9: 'ten' is not a number"),
        (ORIGINAL.replace("12.5,1.0E7,0.0", "12.5"), "3: has 2 values, and the header 4"),
        ('kafka.server:type=Produce,user=alice:byte-rate,"1.0"\n', "1: an attribute comes before the first time"),
        ("user,bytes\nalice,5\n", "1: is no line of JmxTool"),
    ],
)
def test_a_line_of_another_program_is_named(text: str, fault: str) -> None:
    with pytest.raises(FormatError) as error:
        list(readings(text.splitlines(keepends=True)))

    assert str(error.value).startswith(fault)
