"""Compares the table of APIs with the message definitions and classes of the newest Kafka.

If it differs, ``make apis`` writes it anew. Before a new version of an API in ``READ`` is offered to clients, the code
that reads and writes its messages must know that version (``test_api``).
"""

from tests.protocol.api_table import source, updated


def test_the_table_is_that_of_the_newest_kafka() -> None:
    assert updated(source()) == source()
