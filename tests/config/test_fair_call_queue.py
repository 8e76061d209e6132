"""Tests that the queue of the file has the folded principals of the file."""

from kafka_quota_proxy.config.principals import Fold
from tests.config.test_load import LISTENERS, loaded


def test_the_queue_has_the_folded_principals() -> None:
    text = f"{LISTENERS}fair_call_queue: {{}}\nprincipals: {{fold: [{{match: 'a-.*', to: a}}]}}\n"

    queue = loaded(text).config.listeners[0].fair_call_queue

    assert queue is not None
    assert queue.fold == (Fold(match="a-.*", to="a"),)
