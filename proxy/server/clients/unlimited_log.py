"""Logs clients that no rule limits, so that a test notices a misspelt client-id: only with ``testing: true``."""

import logging
from collections.abc import Iterable, Mapping
from typing import Final

from kafka_quota_proxy.config.model import DEFAULT
from kafka_quota_proxy.config.quota_kinds import QuotaKind
from kafka_quota_proxy.proxy.quota.entity import Tags
from kafka_quota_proxy.proxy.quota.nearest_rule import guess_words, nearest_rule, tables_in_use
from kafka_quota_proxy.proxy.quota.rule_tables import RuleTables

log = logging.getLogger(__name__)

# How many clients are remembered. A flood of client names must fill neither the log nor the memory.
_MAX_REMEMBERED: Final = 1_000

# If there are no limits of these kinds, nobody expects clients to be limited.
_EXPECTED: Final = (QuotaKind.PRODUCE, QuotaKind.FETCH, QuotaKind.REQUEST, QuotaKind.REQUEST_RATE)
_NO_RULE: Final = "no rule applies to it"


class UnlimitedLog:
    """Logs each client that no rule limits once, until ``begin`` is called. ``rules`` are all rules in force."""

    def __init__(self, rules: RuleTables) -> None:
        self._rules = rules
        self.begin()

    def begin(self) -> None:
        """Forget which clients were logged. They are logged again if no rule limits them when they come again."""
        self._seen: set[Tags] = set()

    def write(self, newly_unlimited: Iterable[Mapping[Tags, QuotaKind]]) -> None:
        """Log those clients in the ``BrokerQuotas.newly_unlimited`` of each broker that no rule limits."""
        if not any(len(self._rules.tables[kind]) for kind in _EXPECTED):
            return
        for clients in newly_unlimited:
            for client, kind in clients.items():
                reason = "" if client in self._seen or len(self._seen) > _MAX_REMEMBERED else self._reason(client, kind)
                if reason:
                    self._seen.add(client)
                    self._log(client, reason)

    def _log(self, client: Tags, reason: str) -> None:
        if len(self._seen) > _MAX_REMEMBERED:
            log.warning("not limited: more than %d clients; no more of them are logged", _MAX_REMEMBERED)
            return
        nearest = nearest_rule(self._rules, client) if reason == _NO_RULE else None
        guess = f"; {guess_words(nearest)}" if nearest is not None else ""
        log.warning(
            "not limited: user=%r client-id=%r (%s%s)", client.user, client.client_id, reason, guess,
            extra={
                "event": "client_not_limited", "user": client.user, "client_id": client.client_id, "reason": reason,
            },
        )  # fmt: skip

    def _reason(self, client: Tags, kind: QuotaKind) -> str:
        """Return why the bytes of ``kind`` of this client are not limited, or an empty text if this is as expected."""
        found = {
            table.kind: rule
            for table in tables_in_use(self._rules)
            if (rule := table.resolve(user=client.user, client_id=client.client_id).rule) is not None
        }
        if not found:
            return _NO_RULE
        other = QuotaKind.FETCH if kind is QuotaKind.PRODUCE else QuotaKind.PRODUCE
        # A rule that names the client is meant to limit what the client does. Others may be about other clients.
        if list(found) == [other] and DEFAULT not in (found[other].user, found[other].client_id):
            return f"no {kind.key} applies to it, only a {other.key}"
        return ""
