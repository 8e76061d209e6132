"""Puts the rules in force into the tables that all brokers share, and reloads of the configuration file with them."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import islice
from typing import Final, NamedTuple

from kafka_quota_proxy.config.model import Listener, ProxyConfig
from kafka_quota_proxy.proxy.quota.rule_tables import QuotaChanges, RuleTableChanges, RuleTables
from kafka_quota_proxy.proxy.rules.administration import QuotaManager
from kafka_quota_proxy.proxy.rules.api import Administration
from kafka_quota_proxy.proxy.session.client_account import Policy

# How many rules are changed at once, in a millisecond or two.
_AT_ONCE: Final = 1_000


class PreparedFile(NamedTuple):
    """What ``ActiveRules.prepare`` has made of a configuration file.

    Attributes:
        config: The file, with the keys that take effect at the next start as they were at the last one.
        tables: All rules that are to be in force.
        changed: How ``tables`` differ from the rules that are in force now.
    """

    config: ProxyConfig
    tables: RuleTables
    changed: RuleTableChanges


def free(last: list[PreparedFile]) -> None:
    """Free a file and the rules that it has replaced, of which ``last`` has the only reference.

    The entities are freed one by one. At once, 100,000 of them hold the interpreter for 30 ms, for each kind of quota.
    """
    file = last.pop()
    entities: list[object] = []
    for kind, table in file.tables.tables.items():
        entities += table.by_entity
        entities += file.changed.tables.get(kind, ())
    del file, table
    while entities:
        entities.pop()


class ActiveRules:
    """Holds the configuration and the quota rules in force, and the manager that changes them.

    ``wall_ms`` returns the Unix time in ms, which decides when rules begin and expire.

    Attributes:
        config: The configuration file as of the last reload, without the rules of other sources.
        tables: All rules in force.
    """

    def __init__(self, config: ProxyConfig, *, wall_ms: Callable[[], int]) -> None:
        self.config = self._started_with = config
        self.quota_manager = QuotaManager(config, wall_ms=wall_ms)
        rules = self.quota_manager.rules
        self.tables = RuleTables(replace(config, quotas=rules.quotas, ip_quotas=rules.ip_quotas))

    @asynccontextmanager
    async def unchanged(self) -> AsyncIterator[None]:
        """Let nothing but a file change the rules. Other changes wait, so that none is lost while it is prepared."""
        async with self.quota_manager.keeper.using_rules:
            yield

    def prepare(self, file: ProxyConfig) -> PreparedFile:
        """Work out which rules are in force under a reloaded file, but enforce none of them yet.

        The file must be put in force next. This takes 1 s for 100,000 changed rules, so call it in a thread, within
        ``unchanged``.
        """
        # These keys take effect at the next start only. For example, what a bucket remembers for the usage log is fixed
        # when the bucket is made.
        started = self._started_with
        config = replace(file, usage_log=started.usage_log, quotas_from=started.quotas_from, store=started.store)
        tables = self.tables.copy()
        changed = _change(tables, config, self.quota_manager.follow_file(config))
        return PreparedFile(config, tables, changed)

    def put_in_force(self, file: PreparedFile) -> None:
        """Enforce the rules of a reloaded file. The time that this takes does not depend on the number of rules.

        Afterwards, ``file.tables`` contains the previous rules.
        """
        self.config = file.config
        self.tables.swap(file.tables)
        self.quota_manager.keeper.wake()

    def policy(self, listener: Listener) -> Policy:
        """Return the settings that the proxy needs while it serves one of a listener's clients."""
        return Policy(
            listener.max_frame_size_bytes,
            listener.enforcement or self.config.enforcement,
            listener.inter_broker,
            listener.sasl.oauthbearer_claim,
            self.administration(listener.name, is_inter_broker=listener.inter_broker),
        )

    def administration(self, listener: str, *, is_inter_broker: bool) -> Administration | None:
        """Return what a listener's sessions need to answer requests about quotas; None if the broker answers them."""
        principals = self.config.principals
        # If the rules come from a topic or from the brokers, the proxy has no rules of its own that a client could
        # change (config.cluster_checks). This stays so after a reload.
        if not principals.admins or is_inter_broker or self._started_with.quotas_from is not None:
            return None
        return Administration(principals.admins, self.quota_manager, listener)


def _change(tables: RuleTables, config: ProxyConfig, changes: QuotaChanges) -> RuleTableChanges:
    """Change rules as ``tables.change`` does, some at a time: compiled code lets no other thread run in between."""
    rules = iter(changes.rules.items())
    first = tables.change(QuotaChanges(dict(islice(rules, _AT_ONCE)), changes.ips), config)
    named = {kind: dict(tags) for kind, tags in first.tables.items()}
    has_connections = first.has_connections
    while some := dict(islice(rules, _AT_ONCE)):
        more = tables.change(QuotaChanges(some, {}))
        for kind, tags in more.tables.items():
            named.setdefault(kind, {}).update(tags)
        has_connections |= more.has_connections
    return RuleTableChanges(named, has_connections, first.addresses)
