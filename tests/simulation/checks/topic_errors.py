"""What a response to a change of one topic says about it."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from tests.simulation.wire import create_partitions, create_topics, delete_topics

if TYPE_CHECKING:
    from tests.simulation.ledger import Exchange

# By the keys of the APIs that change topics.
PARSERS: Final[dict[int, Callable[[bytes, int], Any]]] = {
    create_topics.API_KEY: create_topics.parse_response,
    delete_topics.API_KEY: delete_topics.parse_response,
    create_partitions.API_KEY: create_partitions.parse_response,
}


def error_of(exchange: "Exchange", frame: bytes) -> int | None:
    """Return the error of the topic in a response; None if the response is not about one topic."""
    topics = PARSERS[exchange.api_key](frame, exchange.api_version).topics
    return int(topics[0].error_code) if len(topics) == 1 else None
