"""Escapes user names as Kafka does in its metrics."""

from urllib.parse import quote


def sanitize(name: str) -> str:
    """Return ``name`` with each UTF-8 byte other than ``A-Z a-z 0-9 . - _`` escaped as ``%XX``.

    Kafka escapes only user names, and not client-ids (``Sanitizer.sanitize`` in org.apache.kafka.common.utils).
    """
    # Java escapes the tilde, but quote does not.
    return quote(name, safe="", errors="replace").replace("~", "%7E")
