"""Logs for which rules requests wait for longer than their clients do.

A producer that gives up sends the same records again. If its requests wait in a long line, a large part of the quota
may go to records that are written twice.
"""

import logging
from collections.abc import Mapping
from typing import Final

from kafka_quota_proxy.proxy.quota.bucket import Bucket
from kafka_quota_proxy.proxy.quota.rule_phrases import as_written, limit_words, rule_words
from kafka_quota_proxy.proxy.session.counters import LongWait

log = logging.getLogger(__name__)

_EVERY_MS: Final = 300_000
# Bounds the buckets that are remembered, and so the lines in five minutes.
_MAX_REMEMBERED: Final = 100


class PatienceLog:
    """Warns about each bucket at most every five minutes, and about 100 buckets in this time."""

    def __init__(self) -> None:
        self._logged_ms: dict[Bucket, int] = {}

    def write(self, impatient: Mapping[Bucket, LongWait], *, now_ms: int) -> None:
        """Log the buckets of ``Counters.newly_impatient`` of one listener."""
        if not impatient:
            return
        self._logged_ms = {one: at_ms for one, at_ms in self._logged_ms.items() if now_ms - at_ms < _EVERY_MS}
        for bucket, (wait_ms, patience_ms) in impatient.items():
            rule = bucket.rule
            if rule is None or bucket in self._logged_ms or len(self._logged_ms) >= _MAX_REMEMBERED:
                continue
            self._logged_ms[bucket] = now_ms
            key, limit = bucket.kind.key, as_written(bucket.kind, bucket.limit / bucket.kind.per_unit, rule)
            log.warning(
                "requests wait for longer than their clients do: up to %.1f s for user=%r client-id=%r, and the "
                "clients give up after %.1f s and send the same records again; %s: limit %s, rule %s; raise the limit, "
                "let fewer connections share it, or raise request.timeout.ms and delivery.timeout.ms of the clients",
                wait_ms / 1_000, bucket.tags.user, bucket.tags.client_id, patience_ms / 1_000, key,
                limit_words(key, limit), rule_words(rule),
                extra={
                    "event": "wait_exceeds_patience", "kind": bucket.kind.label, "user": bucket.tags.user,
                    "client_id": bucket.tags.client_id, "wait_ms": wait_ms, "patience_ms": patience_ms, "limit": limit,
                },
            )  # fmt: skip
