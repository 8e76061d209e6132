"""The metrics of a store in a topic."""

from config.quota_record import Setting, decode
from proxy.metrics.store_topic import families
from proxy.quota_keeper.topic import TopicKeeper
from proxy.quota_topic.state import Seen
from tests.support.topic_log import LogReader, LogWriter, TopicLog

PREFIX = "kafka_quota_proxy_store_topic_"


def test_they_tell_how_far_the_topic_is_read_and_what_it_has() -> None:
    log = TopicLog()
    topic = TopicKeeper("t", _nothing, None, reader=lambda tell: LogReader(log, tell), writer=LogWriter(log))
    setting = Setting(user="alice", key="producer_byte_rate", value=5.0)
    topic.state.begin()
    topic.state.take([Seen(0, 0, setting), Seen(1, 0, decode(b"?", None)), Seen(2, 0, setting)], next_offset=3)
    topic.state.end_reached(next_offset=3)
    topic.is_connected, topic.failures, topic.refused, topic.offset = True, 4, 5, 3

    assert {family.name.removeprefix(PREFIX): dict(family.samples)[""] for family in families(topic)} == {
        "records_total": 3.0,
        "not_understood_records_total": 1.0,
        "failures_total": 4.0,
        "refused_changes_total": 5.0,
        "connected": 1.0,
        "entities": 1.0,
        "offset": 3.0,
        "disk_failures_total": 0.0,
    }


def test_without_a_topic_there_are_none() -> None:
    assert list(families(None)) == []


async def _nothing(_: object) -> None:
    """Nobody holds anything."""
