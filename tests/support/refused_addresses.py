"""The proxy refuses each name that is no address; Kafka resolves names, and has other words for those that fail."""

import re


def in_kafkas_words(text: str) -> str:
    """Return an error message, or a text with one, as Kafka would write it for a name that nobody resolves."""
    pattern = r"'([^']*)' is not an IP address; write one such as 10\.0\.0\.7"
    return re.sub(pattern, r"\1 is not a valid IP or resolvable host.", text)
