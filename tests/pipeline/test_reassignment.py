"""A plan and its sizes, right and wrong."""

from pathlib import Path

import pytest

from kafka_quota_proxy.pipeline.errors import InputError
from kafka_quota_proxy.pipeline.reassignment import read_plan, read_sizes
from kafka_quota_proxy.pipeline.rebalance import Partition

HEAD = "topic,partition,leader,replicas,size_bytes,incoming_byte_rate\n"


def test_a_plan_of_kafka_is_read(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(
        '{"version":1,"partitions":[{"topic":"orders","partition":3,"replicas":[1,2],"log_dirs":["any","any"]}]}',
        encoding="utf-8",
    )

    assert read_plan(str(path)) == {("orders", 3): [1, 2]}


@pytest.mark.parametrize(
    ("text", "fault"),
    [("{\n,", "2: is no JSON"), ("[]", "1: is no plan"), ('{"partitions": [{"topic": "x"}]}', "1: is no plan")],
)
def test_a_file_that_is_no_plan_is_refused(tmp_path: Path, text: str, fault: str) -> None:
    path = tmp_path / "plan.json"
    path.write_text(text, encoding="utf-8")

    with pytest.raises(InputError) as error:
        read_plan(str(path))

    assert str(error.value).startswith(f"{path}:{fault}")


def test_sizes_take_units(tmp_path: Path) -> None:
    path = tmp_path / "sizes.csv"
    path.write_text(HEAD + "orders, 0, 1, 1 2, 10GB, 5MB\n", encoding="utf-8")

    assert read_sizes(str(path)) == {("orders", 0): Partition(1, frozenset({1, 2}), 10**10, 5_000_000)}


def test_each_fault_of_sizes_has_its_line(tmp_path: Path) -> None:
    path = tmp_path / "sizes.csv"
    path.write_text(HEAD + "orders,x,1,1 b,-1,fast\norders,0,3,1 2,1,1\n", encoding="utf-8")

    with pytest.raises(InputError) as error:
        read_sizes(str(path))

    assert [fault.removeprefix(f"{path}:").split(":")[:2] for fault in error.value.faults] == [
        ["2", " partition"],
        ["2", " size_bytes"],
        ["2", " incoming_byte_rate"],
        ["2", " replicas"],
        ["3", " leader"],
    ]
