"""A simulated broker with quotas of its own. It is a script for ``stub_broker``."""

from kafka_quota_proxy.protocol.api import ApiKey
from kafka_quota_proxy.protocol.client_quotas import (
    ALTER,
    DESCRIBE,
    AlterResponse,
    write_response,
)
from kafka_quota_proxy.proxy.rules.alter import decide, refuse_alter
from kafka_quota_proxy.proxy.rules.describe import describe, refuse_describe
from kafka_quota_proxy.proxy.rules.model import Entity, StoredRule, apply
from tests.simulation.wire.greeting import api_versions
from tests.support.frames import produce_response
from tests.support.quota_request_frames import read_alter_request, read_describe_request
from tests.support.stub_broker import correlation_id


class QuotaBroker:
    """Answers ApiVersions, DescribeClientQuotas, AlterClientQuotas and Produce.

    Attributes:
        rules: The quotas of the cluster.
        error_code: The error code of its responses to both quota APIs. 0 means that it does what they ask for.
        highest: The newest version of both quota APIs. If it is None, the broker does not have these APIs.
        asked: The number of reads of its quotas.
    """

    def __init__(self, rules: dict[Entity, StoredRule] | None = None) -> None:
        self.rules = rules or {}
        self.error_code = 0
        self.highest: int | None = 1
        self.asked = 0

    def script(self, frame: bytes) -> bytes:
        """Return the response to a whole request."""
        api_key = int.from_bytes(frame[4:6])
        if api_key == ApiKey.API_VERSIONS:
            return self._versions(frame)
        if api_key == DESCRIBE:
            return self._describe(frame)
        if api_key == ALTER:
            return self._alter(frame)
        return produce_response(correlation_id(frame))

    def set(self, entity: Entity, **limits: float) -> None:
        """Change a quota as an administrator does without the proxy."""
        apply(self.rules, [(entity, StoredRule(limits=limits) if limits else None)])  # type: ignore[list-item]

    def _versions(self, frame: bytes) -> bytes:
        known = {ApiKey.API_VERSIONS: 3, ApiKey.METADATA: 9}
        if self.highest is not None:
            known |= {ApiKey.DESCRIBE_CLIENT_QUOTAS: self.highest, ApiKey.ALTER_CLIENT_QUOTAS: self.highest}
        # The response has version 0, because clients ask for that version first.
        return api_versions.response(correlation_id(frame), 0, {key: (0, highest) for key, highest in known.items()})

    def _describe(self, frame: bytes) -> bytes:
        request = read_describe_request(frame)
        self.asked += 1
        response = refuse_describe(self.error_code, "No.") if self.error_code else describe(self.rules, request)
        return write_response(response, correlation_id=request.correlation_id, api_version=request.api_version)

    def _alter(self, frame: bytes) -> bytes:
        request = read_alter_request(frame)
        if self.error_code:
            results = refuse_alter(request, self.error_code, "No.")
        else:
            decision = decide(self.rules, request, {}, self.rules, now_ms=0)
            results = decision.results
            apply(self.rules, decision.changes)
        return write_response(
            AlterResponse(0, results), correlation_id=request.correlation_id, api_version=request.api_version
        )
