"""What a file wants of packages that are not installed with the program itself."""

from collections.abc import Iterator
from importlib.util import find_spec
from typing import Final

from config.document import Document, key_path
from config.errors import Fault, Severity
from config.quotas_from_checks import asks_broker
from config.raw import mapping_at

_TOPIC: Final = ("quotas_from",)
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
