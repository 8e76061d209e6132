"""What a file wants of packages, and of the operator's own code, that is not installed with the program itself."""

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
# Section, and then the package that it is imported from and the extra that brings it.
_WANTED: Final = (
    (("usage_log", "kafka"), "aiokafka", "usage-topic"),
    (_TOPIC, "aiokafka", "usage-topic"),
    (("store", "kafka"), "aiokafka", "usage-topic"),
)


def check_packages(document: Document) -> Iterator[Fault]:
    """Yield a warning for each section that needs what is not there: the proxy may run on another machine."""
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
    """Yield an error for each function of the operator's that is not there; it is imported to see that."""
    sections: list[tuple[Location, object]] = [((_QUEUE,), mapping_at(document, _QUEUE))]
    sections += [(("listeners", index, _QUEUE), one.get(_QUEUE)) for index, one in elements(document, "listeners")]
    for where, section in sections:
        try:
            provider = parse_identity_provider(section.get(_IDENTITY_PROVIDER) if isinstance(section, dict) else None)
        except ValueError:  # a fault of the schema's, or there is none
            continue
        if not isinstance(provider, OwnIdentityProvider):
            continue
        try:
            load_identity_function(provider)
        except ValueError as error:
            location = (*where, _IDENTITY_PROVIDER)
            line, key = document.line(location), key_path(location)
            yield Fault(file=document.file, line=line, key=key, message=str(error))
