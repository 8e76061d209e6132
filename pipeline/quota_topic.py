"""Writes to the quota topic, and reads the records of an earlier process. ``config.quota_record`` has the format.

Each record has a header with the publisher's id. So rules of other writers are left alone, and two publishers notice
each other, since together they would give out more than a limit.
"""

import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any, Final, NamedTuple, TypeVar

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import KafkaError, TopicAlreadyExistsError, UnknownTopicOrPartitionError, for_code

from kafka_quota_proxy.config.quota_record import News, QuotaRecord, Rule, Share, decode, encode
from kafka_quota_proxy.pipeline.errors import PipelineError
from kafka_quota_proxy.pipeline.kafka_config import KafkaConfig

_POLICY: Final = "cleanup.policy"
# Each publication has a record of news. Frequent compaction keeps the topic short for a proxy that starts.
_CONFIG: Final = {_POLICY: "compact", "segment.ms": "600000", "max.compaction.lag.ms": "600000"}
_HEADER: Final = "balance"
# How long a cluster may take to answer at the start.
_TIMEOUT_MS: Final = 30_000
_REQUEST_TIMEOUT_MS: Final = 10_000
# How long until an unreachable cluster is reported.
_BOOTSTRAP_TIMEOUT_MS: Final = 15_000
_POLL_MS: Final = 500
_LINGER_MS: Final = 5
_NO_CONFIG: Final = KafkaConfig()

_T = TypeVar("_T")


class Found(NamedTuple):
    """The records of an earlier ``balance``; rules only if no other writer has changed them since."""

    rules: tuple[Rule, ...]
    shares: tuple[Share, ...]
    lease_ms: int | None  # from its last news; None without news


class QuotaTopic:
    """The publisher's side of the topic.

    Args:
        servers: ``HOST:PORT``, with a comma between several.
        topic: the name of the topic.
        kafka: the rest of the client configuration.
        delivery_ms: the time limit for sent records; later ones are dropped and never reach the topic.

    Raises:
        InputError: ``kafka`` has an unusable setting.
    """

    def __init__(self, servers: str, topic: str, kafka: KafkaConfig = _NO_CONFIG, *, delivery_ms: int) -> None:
        self._servers = servers.split(",")
        self._client: dict[str, Any] = {
            **kafka.client_keywords(),
            "bootstrap_servers": self._servers,
            "request_timeout_ms": _REQUEST_TIMEOUT_MS,
            "bootstrap_timeout_ms": _BOOTSTRAP_TIMEOUT_MS,
        }
        self._delivery_ms = delivery_ms
        self._topic = topic
        self._place = TopicPartition(topic, 0)
        self._id = uuid.uuid4().hex[:12].encode()
        self._producer: Any = None
        self._consumer: Any = None

    def begin(self) -> Found:
        """Create the topic if it does not exist, and read it to its end.

        Raises:
            PipelineError: the topic cannot be reached, or has a wrong configuration.
        """
        try:
            self._make()
            self._producer = KafkaProducer(
                **self._client | {"request_timeout_ms": min(_REQUEST_TIMEOUT_MS, self._delivery_ms - _LINGER_MS)},
                enable_idempotence=True,
                linger_ms=_LINGER_MS,
                delivery_timeout_ms=self._delivery_ms,
                max_block_ms=_TIMEOUT_MS,
            )
            _until_known(lambda: self._producer.partitions_for(self._topic))
            self._consumer = KafkaConsumer(**self._client, group_id=None, enable_auto_commit=False)
            self._consumer.assign([self._place])
            return _until_known(self._found)
        except (KafkaError, OSError) as error:
            raise self._fault(error) from error

    def publish(self, records: Iterable[QuotaRecord]) -> None:
        """Write records in this order, and wait for their acknowledgement.

        Raises:
            PipelineError: some records could not be written; which ones is unknown.
        """
        try:
            sent = []
            for record in records:
                key, value = encode(record)
                sent.append(
                    self._producer.send(self._topic, key=key, value=value, partition=0, headers=[(_HEADER, self._id)])
                )
            self._producer.flush(self._delivery_ms / 1_000)
            for one in sent:
                one.get(timeout=0)
        except (KafkaError, OSError) as error:
            raise self._fault(error) from error

    def check_alone(self) -> None:
        """Read the records since the last call, up to the current end of the topic.

        Raises:
            PipelineError: another process publishes there, or the topic cannot be read.
        """
        try:
            others = {publisher for publisher, _ in self._to_end()} - {None, self._id}
        except (KafkaError, OSError) as error:
            raise self._fault(error) from error
        if others:
            raise PipelineError(
                f"{self._where}: another balance --follow writes to this topic, and shares of two are more than a "
                "limit; end one of them. The proxies are at their rules for all when the leases have run out"
            )

    def end(self) -> None:
        """Close the connections."""
        for client in (self._producer, self._consumer):
            if client is not None:
                client.close()

    def _make(self) -> None:
        admin = KafkaAdminClient(**self._client)
        try:
            try:
                partitions, policy = self._partitions(admin), self._policy(admin)
            except UnknownTopicOrPartitionError:
                with suppress(TopicAlreadyExistsError):  # another process was faster
                    admin.create_topics({self._topic: {"num_partitions": 1, "configs": _CONFIG}})
                partitions, policy = _until_known(lambda: self._partitions(admin)), _CONFIG[_POLICY]
        finally:
            admin.close()
        if partitions != 1:
            raise PipelineError(
                f"{self._where}: has {partitions} partitions, and the order of records is that of one "
                "only; name another topic, or make this one anew with one partition and cleanup.policy=compact"
            )
        if policy is None:
            raise PipelineError(
                f"{self._where}: its configuration cannot be read, and so not whether rules would expire in it; grant "
                "DESCRIBE_CONFIGS for the topic"
            )
        if policy != _CONFIG[_POLICY]:
            raise PipelineError(
                f"{self._where}: has {_POLICY}={policy}, and rules and shares would expire with its retention; "
                f"set {_POLICY}={_CONFIG[_POLICY]} (kafka-configs --alter --add-config), or name another topic"
            )

    def _partitions(self, admin: KafkaAdminClient) -> int:
        (topic,) = admin.describe_topics([self._topic])
        if topic["error_code"]:
            raise for_code(topic["error_code"])
        return len(topic["partitions"])

    def _policy(self, admin: KafkaAdminClient) -> str | None:
        """Return the cleanup policy of the topic; None if it may not be read."""
        asked = ConfigResource(ConfigResourceType.TOPIC, self._topic, [_POLICY])
        told = admin.describe_configs([asked], config_filter="all")
        found: str | None = told.get("topic", {}).get(self._topic, {}).get(_POLICY, {}).get("value")
        return found

    def _found(self) -> Found:
        self._consumer.seek_to_beginning(self._place)
        rules: dict[tuple[object, ...], Rule] = {}
        shares: dict[tuple[object, ...], Share] = {}
        lease_ms: int | None = None
        for publisher, record in self._to_end():
            if isinstance(record, News):
                lease_ms = record.lease_ms or lease_ms
            elif isinstance(record, Share):
                _keep(shares, (record.proxy, record.user, record.client_id), record)
            elif not isinstance(record, Rule):
                continue  # rules set at a proxy are left alone
            elif publisher is not None:
                _keep(rules, (record.user, record.client_id), record)
            else:
                rules.pop((record.user, record.client_id), None)
        return Found(tuple(rules.values()), tuple(shares.values()), lease_ms)

    def _to_end(self) -> Iterator[tuple[bytes | None, QuotaRecord]]:
        """Yield the publisher and the content of each record since the last read."""
        end = self._consumer.end_offsets([self._place])[self._place]
        deadline = time.monotonic() + _TIMEOUT_MS / 1_000
        while self._consumer.position(self._place) < end:
            if time.monotonic() > deadline:
                raise PipelineError(f"{self._where}: was not read to its end within {_TIMEOUT_MS // 1_000} s")
            yield from self._polled()

    def _polled(self) -> Iterator[tuple[bytes | None, QuotaRecord]]:
        for messages in self._consumer.poll(timeout_ms=_POLL_MS).values():
            for message in messages:
                record = decode(message.key, message.value)
                if isinstance(record, Rule | Share | News):
                    yield dict(message.headers or ()).get(_HEADER), record

    def _fault(self, error: Exception) -> PipelineError:
        return PipelineError(f"{self._where}: {type(error).__name__}: {error}".rstrip(": "))

    @property
    def _where(self) -> str:
        return f"--to kafka://{','.join(self._servers)}/{self._topic}"


def _until_known(ask: Callable[[], _T]) -> _T:
    """Return the result of ``ask``, once all brokers know a new topic."""
    deadline = time.monotonic() + _BOOTSTRAP_TIMEOUT_MS / 1_000
    while True:
        try:
            return ask()
        except UnknownTopicOrPartitionError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_POLL_MS / 1_000)


def _keep(kept: dict[tuple[object, ...], Any], key: tuple[object, ...], record: Rule | Share) -> None:
    if record.limits:
        kept[key] = record
    else:
        kept.pop(key, None)
