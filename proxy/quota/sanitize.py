"""User names as Kafka writes them in its metrics."""

from urllib.parse import quote


def sanitize(name: str) -> str:
    """Return ``name`` with all but ``A-Z a-z 0-9 . - _`` escaped as ``%XX`` of its UTF-8 bytes.

    Kafka escapes user names only, not client-ids.

    Source: ``Sanitizer.sanitize`` in org.apache.kafka.common.utils: Java's form encoding, with ``*`` and ``+``
    replaced.
    """
    # Unlike Java, quote does not escape the tilde.
    return quote(name, safe="", errors="replace").replace("~", "%7E")
