"""Which function answers requests of which API."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from tests.simulation.brokers import client_quotas, fetch, groups, login, metadata, produce, share, topics

if TYPE_CHECKING:
    from tests.simulation.brokers.connection import Connection
    from tests.simulation.wire.common import RequestHeader

    Handle = Callable[[Connection, RequestHeader, bytes], None]

HANDLERS: Final[Mapping[int, "Handle"]] = {
    0: produce.handle,
    1: fetch.handle,
    3: metadata.answer_metadata,
    8: groups.answer_commit,
    9: groups.answer_offsets,
    10: groups.answer_find,
    11: groups.answer_join,
    12: groups.answer_heartbeat,
    17: login.answer_handshake,
    18: metadata.answer_api_versions,
    19: topics.answer_create,
    20: topics.answer_delete,
    22: groups.answer_producer_id,
    27: groups.answer_markers,
    36: login.answer_authenticate,
    37: topics.answer_grow,
    48: client_quotas.answer_describe,
    49: client_quotas.answer_alter,
    78: share.answer_fetch,
    79: share.answer_acknowledge,
}
