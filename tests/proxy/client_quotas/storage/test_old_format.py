"""Tests that stores in the format before SQLite are imported once, and that damaged ones are refused."""

import logging
import os
import shutil
from pathlib import Path

import pytest

from kafka_quota_proxy.config.model import DEFAULT
from kafka_quota_proxy.config.terms import read_terms
from kafka_quota_proxy.proxy.client_quotas.rules.entity import Entity, StoredRule
from kafka_quota_proxy.proxy.client_quotas.storage.old_format import OldFormatError, read_old_files
from kafka_quota_proxy.proxy.client_quotas.storage.rule_database import (
    RuleDatabase,
    StoredRules,
    UnusableStoreError,
    read_store,
)
from tests.support.stores import DATABASE, old_journal, write_rules

# The last version with this format wrote this store: twelve requests, with snapshots after the fourth and eighth.
OLD_STORE = Path(__file__).parent / "old_store"
TERMS = read_terms(
    {
        "expires": "2036-12-01T00:00:00Z",
        "schedule": {"hours": "08:00-18:00", "days": ["mon"], "time_zone": "Europe/Berlin"},
    }
)
RULES = {
    **{
        Entity(f"u{number % 5}"): StoredRule(limits={"producer_byte_rate": float(number)})
        for number in (8, 9, 10, 11, 12)
    },
    Entity("both", DEFAULT): StoredRule(limits={"consumer_byte_rate": 12.0}, terms=TERMS),
    Entity(ip="192.0.2.7"): StoredRule(limits={"connection_creation_rate": 5.0}),
}
LAST = f"{8:020}.journal"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return Path(shutil.copytree(OLD_STORE, tmp_path / "store"))


def opened(path: Path, *, is_copy: bool = False) -> StoredRules:
    database = RuleDatabase(path, is_copy=is_copy)
    try:
        return database.open()
    finally:
        database.close()


def alice(rate: float) -> list[list[object]]:
    return [[{"user": "alice"}, {"producer_byte_rate": rate}]]


def test_old_store_is_read(store: Path) -> None:
    assert read_old_files(store) == RULES


def test_old_store_is_imported_once_and_kept(store: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    assert read_store(store).rules == RULES, "check does not count them"

    assert opened(store).rules == RULES

    assert f"{store}/{DATABASE}: importing the quotas of 7 entities from an earlier version" in caplog.text
    aside = {path.name.removesuffix(".imported"): path.read_bytes() for path in store.glob("*.imported")}
    assert aside == {path.name: path.read_bytes() for path in OLD_STORE.iterdir()}
    assert sorted(path.suffix for path in store.iterdir()) == ["", ".db", *[".imported"] * 4]
    caplog.clear()
    assert opened(store).rules == RULES
    assert "imported" not in caplog.text


def test_import_that_was_cut_short_is_finished(store: Path) -> None:
    opened(store)
    for path in sorted(store.glob("*.imported"))[1:]:
        path.rename(path.with_suffix(""))
    (store / DATABASE).rename(store / f"{DATABASE}.import")

    assert read_store(store).rules == RULES
    assert opened(store).rules == RULES
    assert len(list(store.glob("*.imported"))) == 4


def test_store_that_an_earlier_version_has_used_since_is_refused(store: Path) -> None:
    opened(store)
    old_journal(store, alice(1.0))

    with pytest.raises(
        UnusableStoreError, match=r"has quotas in quotas\.db, and others in files of an earlier version"
    ):
        opened(store)
    (store / f"{0:020}.journal").unlink()
    assert opened(store).rules == RULES


def test_unfinished_last_line_is_skipped(store: Path) -> None:
    whole = (store / LAST).read_bytes()
    begin = whole.rindex(b"\n", 0, -1) + 1
    for end in range(len(whole) - 2, begin - 1, -1):
        os.truncate(store / LAST, end)
        assert read_old_files(store)[Entity("both", DEFAULT)].limits == {"consumer_byte_rate": 11.0}


def test_damaged_byte_is_refused(store: Path) -> None:
    for name in (LAST, f"{8:020}.snapshot"):
        with (store / name).open("r+b", buffering=0) as file:
            for at, byte in enumerate(file.readall()):
                os.pwrite(file.fileno(), bytes([byte ^ 0x10]), at)
                with pytest.raises(OldFormatError, match=rf"{name}, byte \d+: "):
                    read_old_files(store)
                os.pwrite(file.fileno(), bytes([byte]), at)


def test_damaged_old_store_is_left_as_it_is(store: Path) -> None:
    (store / LAST).write_bytes((store / LAST).read_bytes().replace(b"u1", b"u7"))
    before = {path.name: path.read_bytes() for path in store.iterdir()}

    message = rf"{store}/{LAST}, byte \d+: a line is damaged or missing; start the version that wrote it, or move it"
    with pytest.raises(UnusableStoreError, match=message):
        opened(store)
    assert {path.name: path.read_bytes() for path in store.iterdir() if path.name != "lock"} == before


def test_copy_of_a_topic_that_is_damaged_is_set_aside(store: Path) -> None:
    (store / LAST).write_bytes(b"damaged")

    stored = opened(store, is_copy=True)

    assert (stored.rules, stored.damage) == ({}, f"{store}/{LAST}, byte 0: a line is damaged or missing")
    assert len(list(store.glob("*.damaged"))) == 4
    assert opened(store, is_copy=True) == StoredRules({}, is_written=True)


def test_changes_behind_the_beginning_of_the_next_journal_do_not_count(tmp_path: Path) -> None:
    """These changes could not be written, and the next journal begins without them."""
    old_journal(tmp_path, alice(1.0), alice(2.0)).write_bytes(
        old_journal(tmp_path, alice(1.0), alice(2.0)).read_bytes() + b"half a li"
    )
    old_journal(tmp_path, alice(3.0), after=1)

    assert read_old_files(tmp_path) == {Entity("alice"): StoredRule(limits={"producer_byte_rate": 3.0})}


def test_missing_changes_are_refused(tmp_path: Path) -> None:
    old_journal(tmp_path, alice(1.0))
    old_journal(tmp_path, alice(3.0), after=2)
    with pytest.raises(OldFormatError, match=r"0{20}\.journal, byte \d+: a line is damaged or missing"):
        read_old_files(tmp_path)

    (tmp_path / f"{0:020}.journal").unlink()
    with pytest.raises(OldFormatError, match="changes are missing between 0 and 2"):
        read_old_files(tmp_path)


@pytest.mark.parametrize(
    "pairs",
    [
        *(None, 7, [7], [[]], [[{}, None]], [[{"user": "a"}]], [[{"topic": "t"}, None]], [[{"user": ""}, None]]),
        [[{"user": "a"}, 7]],
        [[{"user": "a"}, []]],
        [[{"user": "a"}, {}]],
        [[{"user": "a"}, {"unknown": 1.0}]],
        [[{"user": "a"}, {"producer_byte_rate": 0}]],
        [[{"user": "a"}, {"producer_byte_rate": 1.0, "terms": {"expires": "soon"}}]],
    ],
)
def test_line_that_is_not_a_change_is_refused(tmp_path: Path, pairs: object) -> None:
    old_journal(tmp_path, pairs)

    with pytest.raises(OldFormatError, match=r"0{20}\.journal, byte \d+: "):
        read_old_files(tmp_path)


def test_version_that_is_not_known_is_refused(tmp_path: Path) -> None:
    old_journal(tmp_path, alice(1.0), version=2)

    with pytest.raises(OldFormatError, match="the first line is"):
        read_old_files(tmp_path)


def test_import_leaves_other_files_as_they_are(tmp_path: Path) -> None:
    others = ["7.journal", "notes.txt", f"{7:020}.journal.bak", f"{7:020}.snapshot.part", f"{7:020}.journal.damaged"]
    for other in others:
        (tmp_path / other).write_text("mine")

    write_rules(tmp_path)

    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*others, DATABASE, "lock"])
