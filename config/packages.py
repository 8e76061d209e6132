"""Packages and code of the operator that a file needs, and that are not installed with the program."""

from collections.abc import Iterator
from importlib.util import find_spec
from typing import Final

from kafka_quota_proxy.config.document import Document, Location, key_path
from kafka_quota_proxy.config.errors import Fault, Severity
from kafka_quota_proxy.config.fair_call_queue import OwnIdentityProvider
from kafka_quota_proxy.config.fair_call_queue_options import parse_identity_provider
from kafka_quota_proxy.config.identity_function import load_identity_function
from kafka_quota_proxy.config.quotas_from_checks import asks_broker
from kafka_quota_proxy.config.unvalidated import elements, mapping_at

_TOPIC: Final = ("quotas_from",)
_QUEUE: Final = "fair_call_queue"
_IDENTITY_PROVIDER: Final = "identity-provider.impl"
# Section; the package that it imports, and the extra that installs the package.
_WANTED: Final = (
    (("usage_log", "kafka"), "aiokafka", "usage-topic"),
    (_TOPIC, "aiokafka", "usage-topic"),
    (("store", "kafka"), "aiokafka", "usage-topic"),
)


def check_packages(document: Document) -> Iterator[Fault]:
    """Warn of each package that is missing. No error, because the proxy may run on another machine."""
    for location, package, extra in _WANTED:
        *around, key = location
        value = (mapping_at(document, *around) or {}).get(key)
        if value and not (location == _TOPIC and asks_broker(document)) and find_spec(package) is None:
            yield Fault(
                file=document.file,
                line=document.line(location),
                key=key_path(location),
                message=f"needs {package}, which is not installed here; the proxy does not start without it: "
                f"pip install 'kafka-quota-proxy[{extra}]'",
                severity=Severity.WARNING,
            )


def check_identity_functions(document: Document) -> Iterator[Fault]:
    """Report each function of the operator that cannot be imported."""
    sections: list[tuple[Location, object]] = [((_QUEUE,), mapping_at(document, _QUEUE))]
    sections += [(("listeners", index, _QUEUE), one.get(_QUEUE)) for index, one in elements(document, "listeners")]
    for where, section in sections:
        try:
            provider = parse_identity_provider(section.get(_IDENTITY_PROVIDER) if isinstance(section, dict) else None)
        except ValueError:  # absent, or a fault that the schema reports
            continue
        if not isinstance(provider, OwnIdentityProvider):
            continue
        try:
            load_identity_function(provider)
        except ValueError as error:
            location = (*where, _IDENTITY_PROVIDER)
            line, key = document.line(location), key_path(location)
            yield Fault(file=document.file, line=line, key=key, message=str(error))
