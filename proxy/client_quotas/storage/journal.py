"""The files of a store, as bytes: read as far as they can be trusted, and put together.

A *journal* has changes behind a number, each with the next one; a *snapshot* has all rules as of a number. A store
begins a journal, and then writes a snapshot of where it begins, so that older files need not be kept. There are:

    snapshot 100, journal 100, snapshot 240, journal 240      the older pair, in case the newer snapshot is damaged

Whoever changes a rule is told once the change is on the disk. So it is there after a crash, whole; at the end of the
last journal there may be another one, in part, which nobody was told of. What a journal has behind the number at which
the next one begins was never told either: the disk had failed, and the store began anew in another file. So it may be
anything.

Anything else that is wrong is *damage*: a file is read up to it and not behind it, nor is what needs the rest of it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from kafka_quota_proxy.proxy.client_quotas.rules.alter import Change, apply
from kafka_quota_proxy.proxy.client_quotas.rules.entity import Entity, StoredRule
from kafka_quota_proxy.proxy.client_quotas.storage.record import (
    JOURNAL,
    NOT_UNDERSTOOD,
    SNAPSHOT,
    DamagedLineError,
    ForeignLineError,
    Header,
    OnForeign,
    journal_header,
    read_changes,
    read_header,
    read_line,
    read_rule,
    snapshot_header,
    write_line,
    written_changes,
    written_rule,
)

_NO_CHECKSUM: Final = 0


class Fault(NamedTuple):
    """What is wrong with a file from some byte on.

    ``is_torn``: all that is wrong is that its last line has no end, as of a file that was being written in a crash.
    """

    file: str
    offset: int
    reason: str
    is_torn: bool = False

    def __str__(self) -> str:
        return f"{self.file}, byte {self.offset}: {self.reason}"


# What to do where a store raises it.
THEN: Final = "start the version that wrote it, or move it away"


class ForeignStoreError(Exception):
    """A file is as it was written, but by a program that says what this one does not know; nothing of it is touched."""


class Journal(NamedTuple):
    """What can be trusted of a journal.

    Attributes:
        file: Its name.
        after: The number of the last change before it.
        changes: Of each number from ``after`` + 1 on, all at once.
        size_bytes: As much of it as can be trusted.
        checksum: Of that.
        fault: What is wrong with the rest; None: it is whole.
    """

    file: str
    after: int
    changes: tuple[tuple[Change, ...], ...]
    size_bytes: int
    checksum: int
    fault: Fault | None


class Snapshot(NamedTuple):
    """All rules as of change ``after``."""

    after: int
    rules: Mapping[Entity, StoredRule]


class Restored(NamedTuple):
    """What a store has.

    Attributes:
        rules: As of the last change that can be trusted.
        number: Of that change.
        last: The journal to go on with; None: a new one has to be begun.
        faults: What is damaged, in the order in which it was met; a torn line is none.
        damaged: The files with damage, and those that cannot be used without them.
        not_understood: What is whole, and not understood: see ``Lenience``.
        lost: How many entities at most have no rule because of that, or for want of the rest of a damaged snapshot.
    """

    rules: dict[Entity, StoredRule]
    number: int
    last: Journal | None
    faults: tuple[Fault, ...]
    damaged: tuple[str, ...]
    not_understood: tuple[Fault, ...] = ()
    lost: int = 0

    @property
    def left_out(self) -> str | None:
        """What to say of what is not understood: the first of it, and how many others; None: there is none."""
        if not self.not_understood:
            return None
        first, *others = self.not_understood
        more = f", and so {'is 1 other' if len(others) == 1 else f'are {len(others)} others'}" if others else ""
        return f"{first}; that rule alone is left out{more}"


class Lenience:
    """Reads what is understood of files that say more: for who has the rest elsewhere, and wants what he can have.

    An entity whose rule is not understood has none, also where an older one was; a line that is no change, or no rule
    of an entity, is as good as damage. A damaged snapshot is read up to it, where no older files have what it had.

    Attributes:
        faults: What is not understood, in the order in which it was met.
    """

    def __init__(self) -> None:
        self.faults: list[Fault] = []
        self._part: Snapshot | None = None  # of the newest that is damaged
        self._missing = 0  # how many rules it has not

    def at(self, file: str, offset: int) -> OnForeign:
        """Return what takes the faults of a line."""
        return lambda reason: self.faults.append(Fault(file, offset, reason))

    def keep_part(self, part: Snapshot, *, missing: int) -> None:
        """Take up what is whole of a damaged snapshot; the newest comes first."""
        if self._part is None:
            self._part, self._missing = part, missing

    def restore(self, snapshots: Sequence[Snapshot | Fault], journals: Sequence[Journal]) -> Restored:
        """Put together what is understood; files in which there is more are told to be damaged. See ``restore``."""
        restored, missing = restore(snapshots, journals), 0
        if self._part is not None and restored.number < self._part.after:
            restored, missing = restore([self._part, *snapshots], journals), self._missing
        rules = {entity: rule for entity, rule in restored.rules.items() if rule is not NOT_UNDERSTOOD}
        return restored._replace(
            rules=rules,
            damaged=tuple(dict.fromkeys((*restored.damaged, *(fault.file for fault in self.faults)))),
            not_understood=tuple(self.faults),
            lost=len(restored.rules) - len(rules) + missing,
        )


# -- written


def begun_journal(after: int) -> tuple[bytes, int]:
    """Return the first line of a journal, and its checksum."""
    return write_line(journal_header(after), _NO_CHECKSUM)


def journal_line(number: int, changes: Iterable[Change], checksum: int) -> tuple[bytes, int]:
    """Return the line of the change with that number, behind lines of that checksum; and the checksum with it."""
    return write_line(written_changes(number, changes), checksum)


def snapshot_lines(after: int, rules: Mapping[Entity, StoredRule]) -> Iterator[bytes]:
    """Yield the lines of a snapshot."""
    line, checksum = write_line(snapshot_header(after, len(rules)), _NO_CHECKSUM)
    yield line
    for entity, rule in rules.items():
        line, checksum = write_line(written_rule(entity, rule), checksum)
        yield line


# -- read


def read_journal(file: str, data: bytes, after: int, lenience: Lenience | None = None) -> Journal:
    """Read a journal up to its end, or to what is wrong with it.

    Args:
        file: Its name.
        data: All of it.
        after: What its first line has to say.
        lenience: None: all of it has to be understood.

    Raises:
        ForeignStoreError: It says what this program does not know; with ``lenience``: in its first line.
    """
    changes: list[tuple[Change, ...]] = []
    at, checksum = 0, _NO_CHECKSUM
    while at < len(data) or not at:
        end = data.find(b"\n", at)
        if end < 0:
            fault = _fault_of_end(file, data, at, checksum)
            return Journal(file, after, tuple(changes), at, checksum, fault)
        try:
            content, line_checksum = read_line(data[at:end], checksum)
            if at:
                number, change = read_changes(content, None if lenience is None else lenience.at(file, at))
                _expect(number, after + len(changes) + 1)
                changes.append(change)
            else:
                _expect(read_header(content), Header(JOURNAL, after, 0))
        except DamagedLineError as error:
            return Journal(file, after, tuple(changes), at, checksum, Fault(file, at, str(error)))
        except ForeignLineError as error:
            if lenience is None or not at:
                raise ForeignStoreError(f"{file}, byte {at}: {error}") from None
            return Journal(file, after, tuple(changes), at, checksum, Fault(file, at, str(error)))
        at, checksum = end + 1, line_checksum
    return Journal(file, after, tuple(changes), at, checksum, None)


def _fault_of_end(file: str, data: bytes, at: int, checksum: int) -> Fault:
    """Return what is wrong with a last line that has no end."""
    try:
        read_line(data[at:-1], checksum)
    except (DamagedLineError, ForeignLineError):
        # The first line is there before the file has its name.
        return Fault(file, at, "the last line has no end", is_torn=at > 0)
    return Fault(file, at, "the last line is whole, and its end is damaged")


def read_snapshot(file: str, data: bytes, after: int, lenience: Lenience | None = None) -> Snapshot | Fault:
    """Read a snapshot, which is whole or of no use. Arguments and errors as of ``read_journal``."""
    rules: dict[Entity, StoredRule] = {}
    at, checksum, count = 0, _NO_CHECKSUM, -1

    def fault(reason: str) -> Fault:
        if lenience is not None and count > 0:
            lenience.keep_part(Snapshot(after, rules), missing=count - len(rules))
        return Fault(file, at, reason)

    try:
        while len(rules) != count:
            end = data.find(b"\n", at)
            if end < 0:
                return fault(f"it ends here, with {len(rules)} of {max(count, 0)} rules")
            content, checksum = read_line(data[at:end], checksum)
            if at:
                entity, rule = read_rule(content, None if lenience is None else lenience.at(file, at))
                _expect(entity in rules, False)
                rules[entity] = rule
            else:
                count = read_header(content).rules
                _expect(read_header(content), Header(SNAPSHOT, after, count))
            at = end + 1
    except DamagedLineError as error:
        return fault(str(error))
    except ForeignLineError as error:
        if lenience is None or not at:
            raise ForeignStoreError(f"{file}, byte {at}: {error}") from None
        return fault(str(error))
    if at < len(data):
        return fault(f"it goes on behind its {count} rules")
    return Snapshot(after, rules)


def _expect(given: object, wanted: object) -> None:
    if given != wanted:
        # With the right checksum: a file of another name, or of another program.
        raise ForeignLineError(f"says {given}, where {wanted} is expected")


def restore(snapshots: Sequence[Snapshot | Fault], journals: Sequence[Journal]) -> Restored:
    """Put together what a store has.

    Args:
        snapshots: From the newest to the first that is whole.
        journals: All of them, from the oldest to the newest.
    """
    faults = [snapshot for snapshot in snapshots if isinstance(snapshot, Fault)]
    damaged = [fault.file for fault in faults]
    start = next((snapshot for snapshot in snapshots if isinstance(snapshot, Snapshot)), Snapshot(0, {}))
    rules, number = dict(start.rules), start.after
    last = None
    for index, journal in enumerate(journals):
        if journal.after > number:
            faults.append(_gap(journal, number))
            damaged += (each.file for each in journals[index:])
            last = None
            break
        following = journals[index + 1 :]
        for changes in _told(journal, following)[number - journal.after :]:
            apply(rules, changes)
            number += 1
        last = journal
        if journal.fault is not None and not journal.fault.is_torn and not _is_all_told_there(journal, following):
            faults.append(journal.fault)
            damaged.append(journal.file)
            last = None
    return Restored(rules, number, last, tuple(faults), tuple(damaged))


def _told(journal: Journal, following: Sequence[Journal]) -> Sequence[tuple[Change, ...]]:
    """Return the changes of a journal up to where the next one begins."""
    return journal.changes[: max(following[0].after - journal.after, 0)] if following else journal.changes


def _is_all_told_there(journal: Journal, following: Sequence[Journal]) -> bool:
    """Return whether a journal leads to where the next one begins, whatever is wrong behind."""
    return bool(following) and journal.after + len(journal.changes) >= following[0].after


def _gap(journal: Journal, number: int) -> Fault:
    return Fault(journal.file, 0, f"it begins behind change {journal.after}, and {number} is the last that is known")
