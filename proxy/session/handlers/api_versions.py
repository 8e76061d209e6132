"""Handles ApiVersions: removes versions that the proxy cannot read, and adds the APIs that the proxy answers."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from kafka_quota_proxy.config.quota_kinds import QuotaKind
from kafka_quota_proxy.protocol import api_versions
from kafka_quota_proxy.protocol.api import ApiKey
from kafka_quota_proxy.protocol.api_versions import CEILINGS, VersionRange
from kafka_quota_proxy.protocol.errors import ProtocolError
from kafka_quota_proxy.protocol.header import RequestHead
from kafka_quota_proxy.protocol.metadata_query import FIRST_TOPIC_ID
from kafka_quota_proxy.proxy.rules.api import VERSIONS
from kafka_quota_proxy.proxy.session.address_rewrite import READABLE
from kafka_quota_proxy.proxy.session.frame_edits import Edit, response_edit
from kafka_quota_proxy.proxy.session.handlers.handler import BegunResponse
from kafka_quota_proxy.proxy.session.handlers.other import OtherHandler
from kafka_quota_proxy.proxy.session.in_flight import PendingRequest, RequestProfile
from kafka_quota_proxy.proxy.session.request_charge import RequestCharge


class ApiVersionsHandler(OtherHandler):
    """Handles ApiVersions requests, and edits the API versions that each response offers to the client."""

    __slots__ = ()

    edits_every_response = True

    def pass_on(self, head: RequestHead, charge: RequestCharge | None) -> None:
        """Add a forwarded ApiVersions request to the pending requests, so that its response will be edited."""
        profile = RequestProfile(self, head.api_key, head.api_version, head.client_id, charge=charge)
        self._state.in_flight.append(PendingRequest(profile, head.correlation_id, head.size_bytes, 0, charge))

    def edit_response(self, response: BegunResponse, data: bytes, position: int, now_ms: int) -> Edit | None:
        """Return the edit of the offered versions and of the throttle time, or None if more bytes are needed."""
        context = self._state.context
        api_version = response.profile.api_version
        if context.quotas.limits(QuotaKind.MUTATION):
            self._learn_versions(response, data, position)
        ceilings = CEILINGS if context.addresses is None else READABLE
        return response_edit(
            data,
            position,
            response.frame_bytes,
            ApiKey.API_VERSIONS,
            api_version,
            response.throttle_time_ms,
            ceilings,
            self._own_versions(),
        )

    def _own_versions(self) -> Mapping[int, VersionRange] | None:
        """Return the versions of the APIs that the proxy answers itself, if only by refusing."""
        return None if self._state.context.policy.administration is None else VERSIONS

    def _learn_versions(self, response: BegunResponse, data: bytes, position: int) -> None:
        """Note whether the broker's Metadata API can look topics up by id, if the whole response has arrived.

        The response lists the API versions that the broker supports.
        """
        end = position + response.frame_bytes
        if end <= len(data):
            with suppress(ProtocolError):  # a response that cannot be read is not edited
                newest = api_versions.highest_version(data[position:end], response.profile.api_version, ApiKey.METADATA)
                if newest is not None:
                    self._state.context.finds_ids = newest >= FIRST_TOPIC_ID
