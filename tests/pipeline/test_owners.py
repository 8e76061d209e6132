"""owners.csv, right and wrong."""

from pathlib import Path

import pytest

from kafka_quota_proxy.pipeline.chargeback import Owner
from kafka_quota_proxy.pipeline.errors import InputError
from kafka_quota_proxy.pipeline.owners import read_owners

HEAD = "user,client_id,owner,from,until\n"
DAY_MS = 86_400_000


def test_empty_names_are_any_and_empty_days_no_bound(tmp_path: Path) -> None:
    path = tmp_path / "owners.csv"
    path.write_text(HEAD + 'alice,,"team, a",,1970-01-03\nalice,,b,1970-01-03,\n,etl,tools,,\n', encoding="utf-8")

    assert read_owners(str(path)) == [
        Owner("alice", None, "team, a", until_ms=2 * DAY_MS),
        Owner("alice", None, "b", from_ms=2 * DAY_MS),
        Owner(None, "etl", "tools"),
    ]


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("alice,,,,", "2: owner: is empty"),
        (",,a,,", "2: user: is empty, and client_id too"),
        ("alice,,a,yesterday,", "2: from: 'yesterday' is no day"),
        ("alice,,a,2026-10-02,2026-10-01", "2: until: has to be a later day"),
        ("alice,,a,,2026-10-02\nalice,,b,2026-10-01,", "3: from: of these names the owner is still a"),
    ],
)
def test_each_fault_has_its_line(tmp_path: Path, line: str, fault: str) -> None:
    path = tmp_path / "owners.csv"
    path.write_text(HEAD + line + "\n", encoding="utf-8")

    with pytest.raises(InputError) as error:
        read_owners(str(path))

    assert str(error.value).startswith(f"{path}:{fault}")
