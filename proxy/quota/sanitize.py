"""Names as Kafka puts them into its metrics."""

from urllib.parse import quote


def sanitize(name: str) -> str:
    """Return ``name`` with only ``A-Z a-z 0-9 . - _`` unescaped, the rest as ``%XX`` of its UTF-8.

    Kafka does so with user names; client-ids stand in its metrics as they are.

    Source: ``Sanitizer.sanitize`` in org.apache.kafka.common.utils: Java's form encoding with ``*`` and ``+``
    replaced.
    """
    # quote leaves the tilde alone, Java does not.
    return quote(name, safe="", errors="replace").replace("~", "%7E")
