"""Families of one value each, told of one thing that there may be: a table of what they mean and how they are read."""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias, TypeVar

from kafka_quota_proxy.proxy.admin.metrics.exposition import Family

T = TypeVar("T")

# name, type, what it means, how it is read
Single: TypeAlias = tuple[str, str, str, Callable[[T], float]]


def singles(prefix: str, table: Iterable[Single[T]], thing: T | None) -> Iterator[Family]:
    """Return a family for each row of the table, its name behind ``prefix``; nothing where there is no such thing."""
    if thing is None:
        return
    for name, kind, help_, read in table:
        yield Family(f"{prefix}_{name}", kind, help_, [("", float(read(thing)))])
