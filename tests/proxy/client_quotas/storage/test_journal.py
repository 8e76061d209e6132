"""The files of a store: read up to what is wrong with them, whatever that is, and put together."""

from collections.abc import Sequence

import pytest

from kafka_quota_proxy.config.model import DEFAULT
from kafka_quota_proxy.proxy.client_quotas.rules.alter import Change, apply
from kafka_quota_proxy.proxy.client_quotas.rules.entity import Entity, StoredRule
from kafka_quota_proxy.proxy.client_quotas.storage.journal import (
    Fault,
    ForeignStoreError,
    Journal,
    Restored,
    Snapshot,
    begun_journal,
    journal_line,
    read_journal,
    read_snapshot,
    restore,
    snapshot_lines,
)
from kafka_quota_proxy.proxy.client_quotas.storage.record import write_line

Changes = tuple[Change, ...]
Rules = dict[Entity, StoredRule]


def rule(limit: float) -> StoredRule:
    return StoredRule(limits={"producer_byte_rate": limit})


CHANGES: Sequence[Changes] = (
    (Change(Entity("alice"), rule(1.0)),),
    (Change(Entity("alice"), rule(2.0)), Change(Entity("bob", DEFAULT), rule(3.0))),
    (Change(Entity("alice"), None), Change(Entity(client_id="é"), rule(4.0))),
    (Change(Entity(ip="::1"), StoredRule(limits={"connection_creation_rate": 5.0})),),
)


def rules_after(count: int) -> Rules:
    """Return what there is after the first so many of CHANGES."""
    rules: Rules = {}
    for changes in CHANGES[:count]:
        apply(rules, changes)
    return rules


def journal(after: int = 0, until: int = len(CHANGES)) -> bytes:
    """Return a journal of those of CHANGES behind one number up to another."""
    data, checksum = begun_journal(after)
    for number in range(after + 1, until + 1):
        line, checksum = journal_line(number, CHANGES[number - 1], checksum)
        data += line
    return data


def read(data: bytes, after: int = 0) -> Journal:
    return read_journal(f"{after}.journal", data, after)


def ends(data: bytes | bytearray) -> list[int]:
    """Return where each line ends, the first included."""
    return [at + 1 for at, byte in enumerate(data) if byte == ord("\n")]


def test_a_journal_that_was_written_is_read() -> None:
    for after in range(len(CHANGES) + 1):
        data = journal(after)

        said = read(data, after)

        assert said.changes == CHANGES[after:]
        assert (said.after, said.size_bytes, said.fault) == (after, len(data), None)


def test_a_journal_goes_on_where_it_was_read_to() -> None:
    half = read(journal(0, 2))

    line, _ = journal_line(3, CHANGES[2], half.checksum)

    assert journal(0, 2) + line == journal(0, 3)


def test_wherever_a_journal_is_cut_what_is_in_front_of_it_is_there() -> None:
    data = journal()
    for size in range(len(data)):
        said = read(data[:size])

        whole = [end for end in ends(data) if end <= size]
        assert said.changes == CHANGES[: max(len(whole) - 1, 0)]
        assert said.size_bytes == (whole[-1] if whole else 0)
        if size == said.size_bytes > 0:
            assert said.fault is None
        else:
            assert said.fault == Fault("0.journal", said.size_bytes, "the last line has no end", is_torn=bool(whole))


@pytest.mark.parametrize("flipped", [0x01, 0x80, 0xFF, ord("\n") ^ ord("a")])
def test_wherever_a_journal_is_damaged_it_is_read_up_to_there(flipped: int) -> None:
    data = journal()
    for at in range(len(data)):
        damaged = bytearray(data)
        damaged[at] ^= flipped

        said = read(bytes(damaged))

        line = sum(end <= at for end in ends(data))
        assert said.changes == CHANGES[: max(line - 1, 0)]
        assert said.fault is not None
        assert said.fault.offset == said.size_bytes == ([0, *ends(data)][line])


@pytest.mark.parametrize("byte", [ord("\n") ^ 1, 0, ord("}")])
def test_a_last_line_that_is_whole_but_for_its_end_is_damage(byte: int) -> None:
    """Somebody was told of it; a line that was being written has less."""
    data = journal()

    said = read(data[:-1] + bytes([byte]))

    assert said.changes == CHANGES[:-1]
    assert said.fault == Fault("0.journal", ends(data)[-2], "the last line is whole, and its end is damaged")


def test_lines_that_are_gone_there_twice_or_elsewhere_are_damage() -> None:
    lines = [line + b"\n" for line in journal().split(b"\n")[:-1]]
    for number in range(1, len(CHANGES)):
        gone = [*lines[:number], *lines[number + 1 :]]
        twice = [*lines[: number + 1], *lines[number:]]
        swapped = [*lines[:number], lines[number + 1], lines[number], *lines[number + 2 :]]
        for wrong, right in ((gone, number - 1), (twice, number), (swapped, number - 1)):
            said = read(b"".join(wrong))

            assert said.changes == CHANGES[:right]
            assert said.fault is not None
            assert not said.fault.is_torn


def test_what_another_version_wrote_is_not_touched() -> None:
    newer, _ = write_line({"kafka-quota-store": 2, "file": "journal", "after": 0}, 0)
    header, checksum = begun_journal(0)
    more, _ = write_line({"n": 1, "changes": [[{"user": "a"}, {"enforcement": "observe"}]]}, checksum)
    skipped, _ = journal_line(2, CHANGES[0], checksum)

    with pytest.raises(ForeignStoreError, match="byte 0: version 2; this program knows 1"):
        read(newer)
    with pytest.raises(ForeignStoreError, match="'enforcement' is no key of user a"):
        read(header + more)
    with pytest.raises(ForeignStoreError, match="says 2, where 1 is expected"):
        read(header + skipped)
    with pytest.raises(ForeignStoreError, match="is expected"):
        read(journal(3), after=2)
    with pytest.raises(ForeignStoreError, match="is expected"):
        read(b"".join(snapshot_lines(0, {})))


# -- snapshots


@pytest.mark.parametrize("count", range(len(CHANGES) + 1))
def test_a_snapshot_that_was_written_is_read(count: int) -> None:
    data = b"".join(snapshot_lines(count, rules_after(count)))

    assert read_snapshot("name", data, count) == Snapshot(count, rules_after(count))


def test_a_snapshot_that_is_cut_or_damaged_anywhere_is_none() -> None:
    data = b"".join(snapshot_lines(4, rules_after(4)))
    for at in range(len(data)):
        damaged = bytearray(data)
        damaged[at] ^= 0x01
        for wrong in (data[:at], bytes(damaged)):
            said = read_snapshot("4.snapshot", wrong, 4)

            assert isinstance(said, Fault)
            assert said.file == "4.snapshot"
            assert said.offset <= at
    assert isinstance(read_snapshot("4.snapshot", data + b"\n", 4), Fault)


def test_a_snapshot_of_another_number_or_version_is_not_touched() -> None:
    data = b"".join(snapshot_lines(4, rules_after(4)))
    newer, _ = write_line({"kafka-quota-store": 2, "file": "snapshot", "after": 4, "rules": 0}, 0)
    twice = list(snapshot_lines(4, rules_after(2)))
    header, checksum = write_line({"kafka-quota-store": 1, "file": "snapshot", "after": 4, "rules": 2}, 0)
    once, checksum = write_line([{"user": "a"}, {"producer_byte_rate": 1.0}], checksum)
    again, _ = write_line([{"user": "a"}, {"producer_byte_rate": 2.0}], checksum)

    assert len(twice) == 3
    for wrong, number in ((data, 5), (newer, 4), (journal(4), 4), (header + once + again, 4)):
        with pytest.raises(ForeignStoreError):
            read_snapshot("name", wrong, number)


# -- put together


def snapshot(count: int) -> Snapshot:
    return Snapshot(count, rules_after(count))


def test_a_store_without_files_has_nothing() -> None:
    assert restore([], []) == Restored({}, 0, None, (), ())


@pytest.mark.parametrize("count", range(len(CHANGES) + 1))
def test_journals_go_on_behind_a_snapshot(count: int) -> None:
    journals = [read(journal(0, 2)), read(journal(2, 4), 2)]

    restored = restore([snapshot(count)], journals)

    assert restored == Restored(rules_after(4), 4, journals[1], (), ())
    assert restore([], journals) == restored


def test_a_snapshot_that_is_damaged_has_an_older_one_and_its_journals_behind_it() -> None:
    fault = Fault("3.snapshot", 7, "damaged")
    journals = [read(journal(1, 3), 1), read(journal(3, 4), 3)]

    restored = restore([fault, snapshot(1)], journals)

    assert restored == Restored(rules_after(4), 4, journals[1], (fault,), ("3.snapshot",))


def test_what_nobody_was_told_of_does_not_count() -> None:
    # The disk failed at change 3, and the store began anew behind 2.
    untold, told = read(journal(0, 3)), read(journal(2, 4), 2)
    wrong = untold._replace(changes=(*untold.changes[:2], (Change(Entity("untold"), rule(1.0)),)))
    torn = read(journal(0, 2) + b"0123")
    # What was there of a change that failed, and is something else now.
    rubbish = read(journal(0, 2) + b"0123\n")
    assert rubbish.fault
    assert not rubbish.fault.is_torn

    for first in (untold, wrong, torn, rubbish):
        assert restore([], [first, told]) == Restored(rules_after(4), 4, told, (), ())


def test_a_torn_end_of_the_last_journal_is_no_damage() -> None:
    torn = read(journal()[:-3])

    assert restore([], [torn]) == Restored(rules_after(3), 3, torn, (), ())


def test_behind_damage_nothing_is_trusted() -> None:
    data = bytearray(journal(0, 2))
    data[ends(data)[0] + 20] ^= 1
    damaged = read(bytes(data))
    behind = read(journal(2, 4), 2)

    restored = restore([], [damaged, behind])

    assert restored.rules == {}
    assert (restored.number, restored.last) == (0, None)
    assert [fault.file for fault in restored.faults] == ["0.journal", "2.journal"]
    assert restored.faults[1].reason == "it begins behind change 2, and 0 is the last that is known"
    assert restored.damaged == ("0.journal", "2.journal")
    # A snapshot behind the damage needs none of it.
    restored = restore([snapshot(2)], [damaged, behind])
    assert (restored.rules, restored.number, restored.last) == (rules_after(4), 4, behind)
    assert restored.damaged == ("0.journal",)


def test_a_journal_that_is_missing_is_told() -> None:
    restored = restore([snapshot(1)], [read(journal(3, 4), 3)])

    assert (restored.rules, restored.number, restored.last) == (rules_after(1), 1, None)
    assert [str(fault) for fault in restored.faults] == [
        "3.journal, byte 0: it begins behind change 3, and 1 is the last that is known"
    ]
