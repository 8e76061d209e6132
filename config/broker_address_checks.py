"""Warns of addresses of brokers that no broker has."""

from collections.abc import Iterator
from typing import Final

from kafka_quota_proxy.config.addresses import is_any
from kafka_quota_proxy.config.document import Location
from kafka_quota_proxy.config.unvalidated import UncheckedFile, addresses_of

_CLIENTS: Final = (
    ("quotas_from", "kafka"),
    ("quotas_from", "broker"),
    ("store", "kafka"),
    ("replication", "admin_client"),
    ("usage_log", "kafka"),
)


def check_broker_addresses(file: UncheckedFile) -> None:
    """Warn of 0.0.0.0 or [::] as a broker. Some systems take it for this machine, and others connect to nobody."""
    for location, value in _places(file):
        for address in addresses_of(value):
            if is_any(address.host):
                own = f"127.0.0.1:{address.port}"
                file.warn(location, f"{address} is the address of no broker; for one on this machine write {own}")


def _places(file: UncheckedFile) -> Iterator[tuple[Location, object]]:
    for at, listener in file.elements("listeners"):
        yield from (((*at, key), listener.get(key)) for key in ("upstream", "bootstrap_servers"))
    given = file.top.get("quotas_from")
    if isinstance(given, str):
        yield ("quotas_from",), given.removeprefix("kafka://").partition("/")[0]
    for path in _CLIENTS:
        yield (*path, "bootstrap_servers"), (file.mapping_at(*path) or {}).get("bootstrap_servers")
