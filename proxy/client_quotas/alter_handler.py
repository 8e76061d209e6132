"""Decides which of the changes that an administrator requests are allowed, and stores, applies and audits them."""

import logging
from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, cast

from kafka_quota_proxy.config.terms import TermsChange
from kafka_quota_proxy.protocol.client_quotas import AlterRequest
from kafka_quota_proxy.proxy.background.in_thread import WorkerThread
from kafka_quota_proxy.proxy.background.isolation import report
from kafka_quota_proxy.proxy.client_quotas.api import QuotasAltered
from kafka_quota_proxy.proxy.client_quotas.audit.log import ChangeLog
from kafka_quota_proxy.proxy.client_quotas.formats.format_rule import log_words
from kafka_quota_proxy.proxy.client_quotas.rule_applier import RuleApplier
from kafka_quota_proxy.proxy.client_quotas.rules.alter import (
    Change,
    Decision,
    HiddenRule,
    decide,
    refuse_alter,
)
from kafka_quota_proxy.proxy.client_quotas.rules.entity import Entity, StoredRule
from kafka_quota_proxy.proxy.client_quotas.rules.errors import (
    THROTTLING_QUOTA_EXCEEDED,
    UNKNOWN_SERVER_ERROR,
    UNKNOWN_SERVER_ERROR_MESSAGE,
)
from kafka_quota_proxy.proxy.client_quotas.rules.outcome import Origin, outcomes
from kafka_quota_proxy.proxy.client_quotas.storage.store import NotKeptError, QuotaStore

log = logging.getLogger(__name__)

# How many entities of a request are logged. Ten thousand lines would block the event loop for a tenth of a second.
_MOST_LOGGED: Final = 10


class AlterTask(NamedTuple):
    """A request to change quotas, from Kafka's AlterClientQuotas API or from the admin port.

    ``terms`` contains what the request changes about when and how limits apply, for example an expiry. Kafka's API has
    no such changes. If ``is_small`` is True, the request is processed on the event loop, otherwise in a thread.
    """

    request: AlterRequest
    origin: Origin
    terms: Mapping[Entity, TermsChange]
    is_small: bool


class AlterHandler:
    """Handles requests to change quotas, one at a time. The store applies each stored change through ``applier``."""

    def __init__(
        self,
        store: QuotaStore,
        applier: RuleApplier,
        change_log: ChangeLog,
        thread: WorkerThread,
        *,
        wall_ms: Callable[[], int],
    ) -> None:
        self._store = store
        self._applier = applier
        self._change_log = change_log
        self._thread = thread
        self._wall_ms = wall_ms

    async def alter(self, task: AlterTask) -> QuotasAltered:
        """Decide on a request, make its changes, and write its results to the audit log."""
        altered, is_refused_whole = await self._try(task)
        try:
            await self._audit(altered, task, is_refused_whole=is_refused_whole)
        except Exception as error:  # noqa: BLE001 - the change is made, so a refusal would be wrong
            report(error, "could not audit a quota change by %s", task.origin.principal)
        return altered

    async def _try(self, task: AlterTask) -> tuple[QuotasAltered, bool]:
        """Return the results of a request, and whether the whole request was refused."""
        # The rate is limited before any I/O, because a client may repeat its request without end.
        wait_ms = self._change_log.wait_ms(task.origin)
        if wait_ms:
            message = f"Too many quotas are changed (store.changes_per_second); try again in {wait_ms} ms"
            refused = await self._refuse(task, THROTTLING_QUOTA_EXCEEDED, message)
            return refused._replace(throttle_time_ms=wait_ms), True
        self._change_log.charge(1)
        applier = self._applier
        try:
            await self._store.catch_up()
            async with applier.using_rules:
                decision, altered = await self._thread.run_large(task.is_small, self._decide, task, self._store.sources)
                stored = applier.rules.stored
                before = {entity: stored[entity] for entity, _ in decision.changes if entity in stored}
            if not decision.changes or task.request.validate_only:
                return altered, False
            self._change_log.charge(len(decision.changes) - 1)
            error = await self._keep(decision.changes, before)
        except NotKeptError as error:
            return await self._refuse(task, error.error_code, str(error)), True
        if error is not None:
            return await self._thread.run_large(task.is_small, _with_unknown_outcome, altered, error), False
        _log_changes(task.origin.principal, decision.changes)
        return altered, False

    def _decide(self, task: AlterTask, sources: Mapping[Entity, str]) -> tuple[Decision, QuotasAltered]:
        """Return the changes to make, and the results that the request has if these changes succeed."""
        rules = self._applier.rules

        def hidden(entity: Entity) -> HiddenRule | None:
            return None if entity in sources else rules.hidden(entity, sees_both=task.origin.sees_hidden)

        decision = decide(
            rules.stored,
            task.request._replace(validate_only=False),
            sources=ChainMap(rules.sources, cast("dict[Entity, str]", sources)),
            now_ms=self._wall_ms(),
            terms=task.terms,
            hidden=hidden,
        )
        # If a rule of the configuration file hides a stored rule, the request changes the stored rule.
        stored = {entity: rules.stored[entity] for entity, _ in decision.changes if entity in rules.stored}
        before = ChainMap(stored, cast("dict[Entity, StoredRule]", rules.rules))
        found = outcomes(task.request.alterations, decision.results, decision.changes, before, task.terms)
        return decision, QuotasAltered(decision.results, found)

    async def _keep(self, changes: Sequence[Change], before: Mapping[Entity, StoredRule]) -> NotKeptError | None:
        """Store and apply changes. Return an error if it is unknown whether the changes are stored, otherwise None.

        Raises NotKeptError if the changes are certainly not stored.
        """
        try:
            await self._store.keep(changes, before)
        except NotKeptError as error:
            if not error.may_hold:
                raise
            return error
        except Exception as error:  # noqa: BLE001 - later requests are still answered
            report(error, "quotas could not be applied, but may be stored")
            return NotKeptError(UNKNOWN_SERVER_ERROR, UNKNOWN_SERVER_ERROR_MESSAGE, may_hold=True)
        return None

    async def _refuse(self, task: AlterTask, error_code: int, message: str) -> QuotasAltered:
        rules = self._applier.rules.rules
        return await self._thread.run_large(task.is_small, refuse, task, rules, error_code, message)

    async def _audit(self, altered: QuotasAltered, task: AlterTask, *, is_refused_whole: bool) -> None:
        """Count the outcomes of a request, and write them to the audit log."""
        is_dry_run, unix_ms = task.request.validate_only, self._wall_ms()
        self._change_log.count(altered.outcomes, is_dry_run=is_dry_run)
        if not (is_dry_run or is_refused_whole):
            self._change_log.remember(altered.outcomes, task.origin, unix_ms=unix_ms)
        if not self._change_log.is_audited:
            return
        await self._thread.run(
            self._change_log.write,
            altered.outcomes,
            task.origin,
            is_dry_run=is_dry_run,
            is_refused_whole=is_refused_whole,
            unix_ms=unix_ms,
        )


def refuse(task: AlterTask, rules: Mapping[Entity, StoredRule], error_code: int, message: str) -> QuotasAltered:
    """Return the results of a request that is refused as a whole: the same error for each of its changes."""
    results = refuse_alter(task.request, error_code, message)
    return QuotasAltered(results, outcomes(task.request.alterations, results, (), rules, task.terms))


def _with_unknown_outcome(altered: QuotasAltered, error: NotKeptError) -> QuotasAltered:
    """Return the results with ``error`` for each change, because it is unknown whether the changes are stored."""
    results, found = list(altered.results), list(altered.outcomes)
    for index, outcome in enumerate(found):
        if outcome.new != outcome.old:
            code, message = error.error_code, str(error)
            results[index] = results[index]._replace(error_code=code, error_message=message)
            found[index] = outcome._replace(error_code=code, error_message=message, is_unknown=True)
    return altered._replace(results=tuple(results), outcomes=tuple(found))


def _log_changes(principal: str, changes: Sequence[Change]) -> None:
    for entity, rule in changes[:_MOST_LOGGED]:
        log.info("%s set the quotas of %s: %s", principal, entity, log_words(rule))
    if len(changes) > _MOST_LOGGED:
        log.info("%s set the quotas of %d others", principal, len(changes) - _MOST_LOGGED)
