"""Small tables, and what is said where they are wrong."""

from pathlib import Path

import pytest

from kafka_quota_proxy.pipeline.errors import InputError
from kafka_quota_proxy.pipeline.tables import capacities


def test_capacities_are_read_from_csv_and_from_yaml(tmp_path: Path) -> None:
    table, document = tmp_path / "c.csv", tmp_path / "c.yaml"
    table.write_text("broker, produce, fetch\n# racks\n1, 100MB, 200MB\n2,1000,2000\n", encoding="utf-8")
    document.write_text(
        "- {broker: 1, produce: 100MB, fetch: 200MB}\n- {broker: 2, produce: 1000, fetch: 2000}\n", encoding="utf-8"
    )

    assert capacities(str(table)) == capacities(str(document)) == {
        (1, "produce"): 1e8, (1, "fetch"): 2e8, (2, "produce"): 1_000.0, (2, "fetch"): 2_000.0,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "text", "faults"),
    [
        ("c.csv", "", ["c.csv:1: is empty"]),
        ("c.csv", "broker,produce\n", ["c.csv:1: fetch: is missing"]),
        ("c.csv", "broker,produce,fetch,x\n1,1,1\n", ["c.csv:1: x: is no column", "c.csv:2: has 3 values"]),
        (
            "c.csv",
            "broker,produce,fetch\nb,1MBit,0\n",
            ["c.csv:2: broker: 'b'", "c.csv:2: produce: 'MBit'", "c.csv:2: fetch: a"],
        ),
        ("c.csv", "broker,produce,fetch\n1,1,1\n1,1,1\n", ["c.csv:3: broker 1 has a line already: "]),
        ("c.yaml", "broker: 1\n", ["c.yaml:1: is no list"]),
        ("c.yaml", "- {broker: 1, produce: 1}\n", ["c.yaml:1: has to have exactly"]),
        ("c.yaml", "- {broker: 1\n", ["c.yaml:1: (yaml)"]),
    ],
)
def test_each_fault_has_its_line(tmp_path: Path, name: str, text: str, faults: list[str]) -> None:
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
