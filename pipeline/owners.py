"""Reads owners.csv: the owner of each name, with days."""

from datetime import UTC, datetime

from kafka_quota_proxy.pipeline.chargeback import ALWAYS_UNTIL, Owner, overlaps
from kafka_quota_proxy.pipeline.tables import Reader, csv_lines


def read_owners(path: str) -> list[Owner]:
    """Return the lines of the file.

    Raises:
        InputError: with every fault.
    """
    reader = Reader()
    found: list[tuple[str, Owner]] = []
    for line in csv_lines(path, columns=("user", "client_id", "owner"), optional=("from", "until")):
        from_ms, until_ms = (reader.value(line, column, _day_ms) for column in ("from", "until"))
        values = line.values
        if not values["owner"]:
            reader.faults.append(f"{line.where}: owner: is empty")
        if not (values["user"] or values["client_id"]):
            reader.faults.append(f"{line.where}: user: is empty, and client_id too; give one of them")
        if isinstance(from_ms, int) and isinstance(until_ms, int):
            if 0 <= until_ms <= max(from_ms, 0):
                reader.faults.append(
                    f"{line.where}: until: has to be a later day than from; it no longer holds on that day"
                )
            until_ms = ALWAYS_UNTIL if until_ms < 0 else until_ms
            names = (values["user"] or None, values["client_id"] or None)
            found.append((line.where, Owner(*names, values["owner"], max(from_ms, 0), until_ms)))
    reader.faults += overlaps(found)
    reader.end()
    return [owner for _, owner in found]


def _day_ms(text: str) -> int:
    """Return when a day begins, UTC; -1 where no day is given."""
    if not text:
        return -1
    try:
        return int(datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC).timestamp() * 1_000)
    except ValueError:
        raise ValueError(f"{text!r} is no day; write one such as 2026-10-01") from None
