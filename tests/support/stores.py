"""Stores of quotas on a disk."""

from pathlib import Path

from proxy.quota_store.alter import Change
from proxy.quota_store.directory import StoreDirectory
from proxy.quota_store.entity import Entity, StoredRule


def keep(path: Path, *entities: Entity) -> None:
    """Make a store in which each of these has a limit."""
    store = StoreDirectory(path)
    store.open()
    for entity in entities:
        key = "producer_byte_rate" if entity.ip is None else "connection_creation_rate"
        store.append([Change(entity, StoredRule(limits={key: 5.0}))])
    store.close()
