"""Maps the key of each API to the class of the handler for its requests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kafka_quota_proxy.protocol.api import ApiKey
from kafka_quota_proxy.protocol.client_quotas import ALTER, DESCRIBE
from kafka_quota_proxy.protocol.topic_mutations import FIRST_REFUSABLE_VERSION
from kafka_quota_proxy.proxy.session.handlers.api_versions import ApiVersionsHandler
from kafka_quota_proxy.proxy.session.handlers.fetch import FetchHandler
from kafka_quota_proxy.proxy.session.handlers.handler import Handler
from kafka_quota_proxy.proxy.session.handlers.login import LoginHandler
from kafka_quota_proxy.proxy.session.handlers.produce import ProduceHandler
from kafka_quota_proxy.proxy.session.handlers.quota_requests import QuotaRequestHandler
from kafka_quota_proxy.proxy.session.handlers.topic_mutations import TopicMutationHandler

# `OtherHandler` handles the APIs that are not listed.
HANDLERS: Final[Mapping[int, type[Handler]]] = {
    int(ApiKey.PRODUCE): ProduceHandler,
    int(ApiKey.FETCH): FetchHandler,
    int(ApiKey.SHARE_FETCH): FetchHandler,
    int(ApiKey.API_VERSIONS): ApiVersionsHandler,
    int(ApiKey.SASL_HANDSHAKE): LoginHandler,
    int(ApiKey.SASL_AUTHENTICATE): LoginHandler,
    **dict.fromkeys(map(int, FIRST_REFUSABLE_VERSION), TopicMutationHandler),
    int(DESCRIBE): QuotaRequestHandler,
    int(ALTER): QuotaRequestHandler,
}
