"""Creates and damages the quota stores on disk that tests read."""

import json
import resource
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from kafka_quota_proxy.proxy.rules.model import Change, Entity, StoredRule
from kafka_quota_proxy.proxy.rules.sqlite.rule_database import RuleDatabase

DATABASE = "quotas.db"


def write_rules(path: Path, *requests: Iterable[Change]) -> None:
    """Write the changes of each request to a store."""
    database = RuleDatabase(path)
    database.open()
    for changes in requests:
        database.write(changes)
    database.close()


def keep(path: Path, *entities: Entity) -> None:
    """Create a store with a limit for each of these entities."""
    limits = [{"producer_byte_rate" if entity.ip is None else "connection_creation_rate": 5.0} for entity in entities]
    write_rules(path, map(Change, entities, (StoredRule(limits=each) for each in limits)))


def keep_strange(path: Path, *entities: Entity, count: int = 1) -> Path:
    """Create a store as ``keep`` does, and add ``count`` rules with an unknown time zone.

    Returns the path of its database.
    """
    keep(path, *entities)
    terms = {"schedule": {"hours": "08:00-18:00", "time_zone": "Mars/Olympus"}}
    rule = json.dumps({"limits": {"producer_byte_rate": 5.0}, "terms": terms})
    with closing(sqlite3.connect(path / DATABASE, isolation_level=None)) as connection:
        for number in range(count):
            entity = json.dumps({"user": f"strange-{number}"})
            connection.execute("INSERT OR REPLACE INTO rules (entity, rule) VALUES (?, ?)", (entity, rule))
    return path / DATABASE


def set_version(path: Path, version: int) -> None:
    """Set the version in a store's database."""
    with closing(sqlite3.connect(path / DATABASE)) as connection:
        connection.execute(f"PRAGMA user_version = {version}")


def damage(path: Path) -> None:
    """Overwrite a page of rules in the middle of a store's database."""
    data = bytearray((path / DATABASE).read_bytes())
    # In SQLite, a page that begins with 0x0D is a leaf of a table.
    leaves = [begin for begin in range(0, len(data), 4096) if data[begin] == 0x0D]
    begin = leaves[len(leaves) // 2]
    data[begin : begin + 4096] = b"?" * 4096
    (path / DATABASE).write_bytes(data)


def damage_header(path: Path) -> None:
    """Overwrite the first page of a store's database."""
    data = bytearray((path / DATABASE).read_bytes())
    data[:4096] = b"?" * 4096
    (path / DATABASE).write_bytes(data)


@contextmanager
def no_room_above(size_bytes: int) -> Iterator[None]:
    """Limit the size of files that this process writes. A write beyond that size is incomplete."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
