"""Numbered records in each partition while pods come and go, and what became of them."""

import threading
import time
from collections import Counter
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.end_to_end.support.live_clients import LibrdkafkaProducer

_PARTITIONS: Final = 3
_RECORDS_PER_S: Final = 300
_PATIENCE_S: Final = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """``lost`` and ``twice`` are records that were acknowledged and are stored never, or more than once."""

    acknowledged: int
    failed: int
    lost: int
    twice: int
    disordered: int
    longest_s: float  # from the call of produce to the acknowledgement


class Load:
    """A producer with ``acks=all`` that runs in a thread for the time of a ``with`` block."""

    def __init__(self, bootstrap_servers: str, *, direct: str, topic: str) -> None:
        self._direct, self._topic = direct, topic
        admin = AdminClient({"bootstrap.servers": direct})
        admin.create_topics([NewTopic(topic, _PARTITIONS, 1)])[topic].result(_PATIENCE_S)
        settings = {
            "enable.idempotence": True,
            "linger.ms": 5,
            "message.timeout.ms": 1_000 * _PATIENCE_S,
            "reconnect.backoff.max.ms": 500,
            "topic.metadata.refresh.interval.ms": 2_000,
        }
        self._producer = LibrdkafkaProducer(
            bootstrap_servers, topic, partitions=_PARTITIONS, every_s=1 / _RECORDS_PER_S, settings=settings
        )
        self._thread = threading.Thread(target=self._producer.run)

    def __enter__(self) -> Self:
        self._thread.start()
        deadline = time.monotonic() + _PATIENCE_S
        while not self._producer.acknowledged and time.monotonic() < deadline:
            time.sleep(0.05)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._producer.stop()
        self._thread.join()

    def outcome(self) -> Outcome:
        """Read the topic from the brokers themselves, and compare it with what was acknowledged."""
        consumer = Consumer({"bootstrap.servers": self._direct, "group.id": self._topic, "enable.partition.eof": True})
        consumer.assign([TopicPartition(self._topic, one, 0) for one in range(_PARTITIONS)])
        stored: Counter[int] = Counter()
        last = dict.fromkeys(range(_PARTITIONS), -1)
        ends, disordered = 0, 0
        while ends < _PARTITIONS:
            message = consumer.poll(_PATIENCE_S)
            if message is None:
                break
            if error := message.error():
                if error.code() != KafkaError._PARTITION_EOF:
                    raise AssertionError(error)
                ends += 1
                continue
            number, partition = int(message.key() or b""), message.partition() or 0
            disordered += number < last[partition]
            last[partition] = number
            stored[number] += 1
        consumer.close()
        acknowledged = self._producer.acknowledged
        return Outcome(
            acknowledged=len(acknowledged),
            failed=len(self._producer.failures),
            lost=len(acknowledged - stored.keys()),
            twice=sum(count > 1 for count in stored.values()),
            disordered=disordered,
            longest_s=self._producer.longest_s,
        )
