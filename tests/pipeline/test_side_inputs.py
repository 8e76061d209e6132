"""The files that users write for the commands, valid and faulty ones."""

from pathlib import Path

import pytest

from kafka_quota_proxy.pipeline.chargeback import Owner
from kafka_quota_proxy.pipeline.errors import InputError
from kafka_quota_proxy.pipeline.rebalance import Partition
from kafka_quota_proxy.pipeline.side_inputs import (
    capacities,
    owners,
    partition_sizes,
    reassignment_plan,
)

OWNERS = "user,client_id,owner,from,until\n"
SIZES = "topic,partition,leader,replicas,size_bytes,incoming_byte_rate\n"
DAY_MS = 86_400_000


def test_capacities_are_read_from_csv(tmp_path: Path) -> None:
    table = tmp_path / "c.csv"
    table.write_text("broker, produce, fetch\n# racks\n1, 100MB, 200MB\n2,1000,2000\n", encoding="utf-8")

    assert capacities(str(table)) == {
        (1, "produce"): 1e8, (1, "fetch"): 2e8, (2, "produce"): 1_000.0, (2, "fetch"): 2_000.0,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "text", "faults"),
    [
        ("c.csv", "", ["c.csv:1: is empty"]),
        ("c.csv", "broker,produce\n", ["c.csv:1: fetch: is missing"]),
        ("c.csv", "broker,produce,fetch,x\n1,1,1\n", ["c.csv:1: x: is an unknown column", "c.csv:2: has 3 values"]),
        (
            "c.csv",
            "broker,produce,fetch\nb,1MBit,0\n",
            ["c.csv:2: broker: 'b'", "c.csv:2: produce: 'MBit'", "c.csv:2: fetch: a"],
        ),
        ("c.csv", "broker,produce,fetch\n1,1,1\n1,1,1\n", ["c.csv:3: broker 1 has a line already: "]),
    ],
)
def test_each_fault_of_capacities_has_its_line(tmp_path: Path, name: str, text: str, faults: list[str]) -> None:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")

    with pytest.raises(InputError) as error:
        capacities(str(path))

    assert len(error.value.faults) == len(faults)
    for fault, expected in zip(error.value.faults, faults, strict=True):
        assert fault.startswith(f"{tmp_path}/{expected}")


def test_a_missing_file_is_named() -> None:
    with pytest.raises(InputError, match=r"none\.csv: cannot be read: No such file"):
        capacities("none.csv")


def test_empty_names_are_any_and_empty_days_no_bound(tmp_path: Path) -> None:
    path = tmp_path / "owners.csv"
    path.write_text(OWNERS + 'alice,,"team, a",,1970-01-03\nalice,,b,1970-01-03,\n,etl,tools,,\n', encoding="utf-8")

    assert owners(str(path)) == [
        Owner("alice", None, "team, a", until_ms=2 * DAY_MS),
        Owner("alice", None, "b", from_ms=2 * DAY_MS),
        Owner(None, "etl", "tools"),
    ]


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("alice,,,,", "2: owner: is empty"),
        (",,a,,", "2: user: is empty, and client_id too"),
        ("alice,,a,yesterday,", "2: from: 'yesterday' is not a day"),
        ("alice,,a,2026-10-02,2026-10-01", "2: until: must be a later day"),
        ("alice,,a,,2026-10-02\nalice,,b,2026-10-01,", "3: from: of these names the owner is still a"),
    ],
)
def test_each_fault_of_owners_has_its_line(tmp_path: Path, line: str, fault: str) -> None:
    path = tmp_path / "owners.csv"
    path.write_text(OWNERS + line + "\n", encoding="utf-8")

    with pytest.raises(InputError) as error:
        owners(str(path))

    assert str(error.value).startswith(f"{path}:{fault}")


def test_a_plan_of_kafka_is_read(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(
        '{"version":1,"partitions":[{"topic":"orders","partition":3,"replicas":[1,2],"log_dirs":["any","any"]}]}',
        encoding="utf-8",
    )

    assert reassignment_plan(str(path)) == {("orders", 3): [1, 2]}


@pytest.mark.parametrize(
    ("text", "fault"),
    [("{\n,", "2: is not JSON"), ("[]", "1: is not a plan"), ('{"partitions": [{"topic": "x"}]}', "1: is not a plan")],
)
def test_a_file_that_is_no_plan_is_refused(tmp_path: Path, text: str, fault: str) -> None:
    path = tmp_path / "plan.json"
    path.write_text(text, encoding="utf-8")

    with pytest.raises(InputError) as error:
        reassignment_plan(str(path))

    assert str(error.value).startswith(f"{path}:{fault}")


def test_sizes_take_units(tmp_path: Path) -> None:
    path = tmp_path / "sizes.csv"
    path.write_text(SIZES + "orders, 0, 1, 1 2, 10GB, 5MB\n", encoding="utf-8")

    assert partition_sizes(str(path)) == {("orders", 0): Partition(1, frozenset({1, 2}), 10**10, 5_000_000)}


def test_each_fault_of_sizes_has_its_line(tmp_path: Path) -> None:
    path = tmp_path / "sizes.csv"
    path.write_text(SIZES + "orders,x,1,1 b,-1,fast\norders,0,3,1 2,1,1\n", encoding="utf-8")

    with pytest.raises(InputError) as error:
        partition_sizes(str(path))

    assert [fault.removeprefix(f"{path}:").split(":")[:2] for fault in error.value.faults] == [
        ["2", " partition"],
        ["2", " size_bytes"],
        ["2", " incoming_byte_rate"],
        ["2", " replicas"],
        ["3", " leader"],
    ]
