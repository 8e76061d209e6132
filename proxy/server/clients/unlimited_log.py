"""Logs clients that no rule limits, so that a misspelt client-id is noticed.

With ``testing: true``, each such client is logged as soon as it is seen. Otherwise there are at most two lines, because
an operator may have many clients that need no limit: one line five seconds after the first such client, and one after a
minute with those that came later. All this begins anew when a reload changes the rules, or a test resets the proxy.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Final

from kafka_quota_proxy.config.model import DEFAULT
from kafka_quota_proxy.config.quota_kinds import QuotaKind
from kafka_quota_proxy.proxy.quota.entity import Tags
from kafka_quota_proxy.proxy.quota.nearest_rule import guess_words, nearest_rule, tables_in_use
from kafka_quota_proxy.proxy.quota.rule_tables import RuleTables

log = logging.getLogger(__name__)

# When the lines are written, after the first client was seen.
_LINES_AFTER_MS: Final = (5_000, 60_000)
_MOST_IN_A_LINE: Final = 10
# How many clients are remembered. A flood of client names must fill neither the log nor the memory.
_MAX_REMEMBERED: Final = 1_000

# If there are no limits of these kinds, nobody expects clients to be limited.
_EXPECTED: Final = (QuotaKind.PRODUCE, QuotaKind.FETCH, QuotaKind.REQUEST, QuotaKind.REQUEST_RATE)
_NO_RULE: Final = "no rule applies to it"


class UnlimitedLog:
    """Logs clients that no rule limits.

    Args:
        rules: All rules in force.
        is_for_tests: Whether to log each client at once.
    """

    def __init__(self, rules: RuleTables, *, is_for_tests: bool) -> None:
        self.is_for_tests: Final = is_for_tests
        self._rules = rules
        self.begin()

    def begin(self) -> None:
        """Forget which clients were logged. They are logged again if no rule limits them when they come again."""
        self._seen: set[Tags] = set()
        self._is_full = False
        self._unlogged: dict[Tags, str] = {}  # why each client is not limited
        self._began_ms: int | None = None
        self._lines_left = list(_LINES_AFTER_MS)

    def write(self, newly_unlimited: Iterable[Mapping[Tags, QuotaKind]], *, now_ms: int) -> Iterator[None]:
        """Log the clients in ``newly_unlimited`` that no rule limits, now or in one of the next calls.

        ``newly_unlimited`` has ``BrokerQuotas.newly_unlimited`` of each broker. Yields after each step, so that the
        event loop can run other tasks.
        """
        if not self._lines_left or not any(len(self._rules.tables[kind]) for kind in _EXPECTED):
            return
        for clients in newly_unlimited:
            for client, kind in clients.items():
                self._add(client, kind)
                yield
        if self.is_for_tests:
            yield from self._write_each()
        else:
            yield from self._write_when_due(now_ms)

    def _add(self, client: Tags, kind: QuotaKind) -> None:
        reason = "" if client in self._seen else self._reason(client, kind)
        if not reason:
            return
        if len(self._seen) >= _MAX_REMEMBERED:
            self._is_full = True
            return
        self._seen.add(client)
        self._unlogged[client] = reason

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

    def _write_each(self) -> Iterator[None]:
        was_full = self._is_full
        unlogged, self._unlogged = self._unlogged, {}
        if was_full:
            self._lines_left.clear()
        for client, reason in unlogged.items():
            described = self._describe(client, reason)
            yield
            log.warning("not limited: %s", described, extra={"event": "client_not_limited", **_fields(client, reason)})
        if was_full:
            log.warning("not limited: more than %d clients; no more of them are logged", _MAX_REMEMBERED)

    def _write_when_due(self, now_ms: int) -> Iterator[None]:
        if self._began_ms is None:
            if self._unlogged:
                self._began_ms = now_ms
            return
        if now_ms - self._began_ms < self._lines_left[0]:
            return
        del self._lines_left[0]
        was_full, (unlogged, self._unlogged) = self._is_full, (self._unlogged, {})
        listed: list[str] = []
        clients: list[dict[str, str]] = []
        for client, reason in islice(unlogged.items(), _MOST_IN_A_LINE):
            listed.append(self._describe(client, reason))
            yield
            clients.append(_fields(client, reason))
        more = len(unlogged) - len(listed)
        if more:
            listed.append(f"and {'more than ' if was_full else ''}{more} more")
        if listed:
            log.info(
                "not limited: %s", ", ".join(listed),
                extra={"event": "clients_not_limited", "clients": clients, "others": more},
            )  # fmt: skip

    def _describe(self, client: Tags, reason: str) -> str:
        nearest = nearest_rule(self._rules, client) if reason == _NO_RULE else None
        guess = f"; {guess_words(nearest)}" if nearest is not None else ""
        return f"user={client.user!r} client-id={client.client_id!r} ({reason}{guess})"


def _fields(client: Tags, reason: str) -> dict[str, str]:
    return {"user": client.user, "client_id": client.client_id, "reason": reason}
