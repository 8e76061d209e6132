"""Stores of quotas on a disk."""

from pathlib import Path

from kafka_quota_proxy.proxy.client_quotas.rules.alter import Change
from kafka_quota_proxy.proxy.client_quotas.rules.entity import Entity, StoredRule
from kafka_quota_proxy.proxy.client_quotas.storage.journal import begun_journal, journal_line, snapshot_lines
from kafka_quota_proxy.proxy.client_quotas.storage.record import write_line
from kafka_quota_proxy.proxy.client_quotas.storage.store_directory import StoreDirectory

_LIMIT = StoredRule(limits={"producer_byte_rate": 5.0})


def keep(path: Path, *entities: Entity) -> None:
    """Make a store in which each of these has a limit."""
    store = StoreDirectory(path)
    store.open()
    for entity in entities:
        key = "producer_byte_rate" if entity.ip is None else "connection_creation_rate"
        store.append([Change(entity, StoredRule(limits={key: 5.0}))])
    store.close()


def keep_strange(path: Path, *entities: Entity, count: int = 1) -> Path:
    """Make a store as ``keep`` does, with so many rules of a time zone that nobody knows behind; return its journal."""
    path.mkdir(exist_ok=True)
    journal = path / f"{0:020}.journal"
    line, checksum = begun_journal(0)
    lines = [line]
    for number, entity in enumerate(entities, 1):
        line, checksum = journal_line(number, [Change(entity, _LIMIT)], checksum)
        lines.append(line)
    terms = {"schedule": {"hours": "08:00-18:00", "time_zone": "Mars/Olympus"}}
    for number in range(count):
        rule = {"producer_byte_rate": 5.0, "terms": terms}
        content = {"n": len(entities) + number + 1, "changes": [[{"user": f"strange-{number}"}, rule]]}
        line, checksum = write_line(content, checksum)
        lines.append(line)
    journal.write_bytes(b"".join(lines))
    return journal


def break_snapshot(path: Path, *entities: Entity) -> None:
    """Make a store that is one snapshot, in which the last of these rules is damaged."""
    lines = list(snapshot_lines(7, dict.fromkeys(entities, _LIMIT)))
    (path / f"{7:020}.snapshot").write_bytes(b"".join(lines)[:-9] + b"?" + b"".join(lines)[-8:])
    (path / f"{7:020}.journal").write_bytes(begun_journal(7)[0])
