"""``quotas_from``: keys that need each other."""

from typing import Final

from config.document import Document
from config.raw import Say, mapping_at
from config.replication_checks import check_client

_AT: Final = ("quotas_from",)


def check_quotas_from(document: Document, say: Say) -> None:
    """Tell of every fault of the section that concerns more than one key."""
    section = mapping_at(document, *_AT)
    if section is None:
        return
    if "kafka" not in section:
        say(_AT, "names no topic; give kafka, with bootstrap_servers and topic")
    topic, location = mapping_at(document, *_AT, "kafka"), (*_AT, "kafka")
    if topic is not None:
        if "bootstrap_servers" not in topic:
            say(
                (*location, "bootstrap_servers"),
                "is missing; write brokers of the topic's cluster: HOST:PORT,HOST:PORT",
            )
        check_client(topic, location, say)
