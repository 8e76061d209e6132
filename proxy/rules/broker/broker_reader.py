"""Reads all client quotas of a cluster from one of its brokers. The calls block, so they are made in a thread."""

from collections.abc import Sequence
from typing import Final

from aiokafka.errors import IncompatibleBrokerVersion

from kafka_quota_proxy.config.model import Address, AdminClient
from kafka_quota_proxy.protocol.client_quotas import read_describe_response
from kafka_quota_proxy.protocol.errors import ProtocolError
from kafka_quota_proxy.proxy.kafka_client.admin_client import BrokerClient
from kafka_quota_proxy.proxy.kafka_client.admin_requests import AllClientQuotasRequest
from kafka_quota_proxy.proxy.rules.broker.broker_rules import ParsedQuotas, RefusedError, rules_of

# The time limit for each server. It is short because all servers are tried before the first client is served.
_TIMEOUT_MS: Final = 4_000
_SIZE_AND_ID_BYTES: Final = 8


class BrokerReader:
    """Reads client quotas from the first of ``servers`` that answers. Call ``close`` after any error.

    ``read`` may raise ``RefusedError`` or one of ``proxy.kafka_client.admin_client.ADMIN_ERRORS``.
    """

    def __init__(self, settings: AdminClient, servers: Sequence[Address]) -> None:
        self._client = BrokerClient(settings, servers, timeout_ms=_TIMEOUT_MS)
        self._last = b""

    @property
    def server(self) -> Address:
        """The address of the broker from which the quotas are read."""
        return self._client.server

    def close(self) -> None:
        """Close the connection. If ``read`` is running in another thread, that call fails."""
        self._client.close()

    def read(self) -> ParsedQuotas | None:
        """Return the quotas, or None if they are the same as at the last call.

        Raises:
            RefusedError: The broker refuses to return its quotas, or its response is malformed.
        """
        try:
            api_version, frame = self._client.ask(AllClientQuotasRequest())
        except IncompatibleBrokerVersion:
            raise RefusedError(
                f"{self.server} does not support DescribeClientQuotas, which needs Kafka 2.6; write the rules "
                "under quotas, and remove quotas_from",
                is_lasting=True,
            ) from None
        body = frame[_SIZE_AND_ID_BYTES:]
        if body == self._last:
            return None
        try:
            rules = rules_of(read_describe_response(frame, api_version))
        except ProtocolError as error:
            raise RefusedError(f"the response cannot be read: {error}") from error
        self._last = body
        return rules
