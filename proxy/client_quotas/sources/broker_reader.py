"""Asks a broker for all quotas: blocking, for one thread at a time. It changes nothing there.

Any broker tells those of its whole cluster, so the first that answers is asked, and asked on. It is asked at the
address that is given here: where brokers advertise proxies, whoever goes by their Metadata ends up at one.
"""

from collections.abc import Sequence
from typing import Final

from kafka_quota_proxy.config.model import Address, AdminClient
from kafka_quota_proxy.protocol.api import HIGHEST_VERSION
from kafka_quota_proxy.protocol.client_quotas import (
    DESCRIBE,
    DescribeRequest,
    read_describe_response,
    write_describe_request,
)
from kafka_quota_proxy.protocol.errors import ProtocolError
from kafka_quota_proxy.proxy.background.admin_client import ADMIN_ERRORS, CLIENT_ID, Answer, BrokerClient
from kafka_quota_proxy.proxy.client_quotas.sources.broker_rules import RefusedError, Told, rules_of

# Of connecting, login included, and of each answer. All of the servers are tried before the first client is served.
_TIMEOUT_MS: Final = 4_000
_SIZE_AND_ID_BYTES: Final = 8


class BrokerReader:
    """A connection to one of the brokers, kept from one reading to the next. After an error, ``close`` it.

    Args:
        settings: The file's ``quotas_from.broker``.
        servers: Whom to ask, the first that answers.

    Raises, as does ``read``:
        RefusedError: It does not tell.
        Exception: Whatever kafka-python raises, and OSError; ``proxy.background.admin_client.ADMIN_ERRORS`` are known.
    """

    def __init__(self, settings: AdminClient, servers: Sequence[Address]) -> None:
        self._client, self.server = _first(settings, servers)
        self._last = b""
        version = self._client.version_of(DESCRIBE, HIGHEST_VERSION[DESCRIBE])
        if version is None:
            self._client.close()
            raise RefusedError(
                f"{self.server} does not know DescribeClientQuotas, as brokers do from Kafka 2.6 on; write the rules "
                "under quotas, and leave out quotas_from",
                is_lasting=True,
            )
        self._version = version

    def close(self) -> None:
        """End it; what another thread waits for fails."""
        self._client.close()

    def read(self) -> Told | None:
        """Return what the broker tells now; None where it is what it told last, byte by byte."""
        answer = self._client.ask(DESCRIBE, self._version, _everything)
        told = answer.frame[_SIZE_AND_ID_BYTES:]
        if told == self._last:
            return None
        rules = _read(answer)
        self._last = told
        return rules


def _first(settings: AdminClient, servers: Sequence[Address]) -> tuple[BrokerClient, Address]:
    failures: list[Exception] = []
    for server in servers:
        try:
            return BrokerClient(settings, server, timeout_ms=_TIMEOUT_MS), server
        except ADMIN_ERRORS as error:
            failures.append(error)
    raise failures[0]


def _everything(api_version: int, correlation_id: int) -> bytes:
    # Without components and not strict: every entity matches.
    return write_describe_request(DescribeRequest(api_version, correlation_id, (), False), client_id=CLIENT_ID)


def _read(answer: Answer) -> Told:
    try:
        return rules_of(read_describe_response(answer.frame, answer.api_version))
    except ProtocolError as error:
        raise RefusedError(f"the answer is none: {error}") from error
