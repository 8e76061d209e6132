"""Combines the configuration file with quota rules of other sources: stored rules, a quota topic, or brokers."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from kafka_quota_proxy.config.model import Listener, ProxyConfig, QuotaRule
from kafka_quota_proxy.proxy.client_quotas.api import Administration
from kafka_quota_proxy.proxy.client_quotas.manager import QuotaManager
from kafka_quota_proxy.proxy.client_quotas.sources.broker_source import broker_source
from kafka_quota_proxy.proxy.client_quotas.sources.quota_source import QuotaSource
from kafka_quota_proxy.proxy.client_quotas.sources.topic_source import topic_source
from kafka_quota_proxy.proxy.quota.entity import Entity
from kafka_quota_proxy.proxy.quota.rule_changes import IpChanges, QuotaChanges, RuleChanges
from kafka_quota_proxy.proxy.quota.rule_tables import RuleTableChanges, RuleTables
from kafka_quota_proxy.proxy.session.client_account import Policy


class ActiveRules:
    """Holds the configuration and the quota rules in force, and the sources that change them.

    ``wall_ms`` returns the Unix time in ms, which decides when rules begin and expire. ``on_changed`` is called with
    the changes whenever rules change without a reload of the file.

    Attributes:
        config: The configuration as of the last reload. Its rules may be older than those in ``tables``.
        tables: All rules in force.
        file: The configuration file as it was read last, without the rules of other sources.
    """

    def __init__(
        self, config: ProxyConfig, *, wall_ms: Callable[[], int], on_changed: Callable[[RuleTableChanges], None]
    ) -> None:
        self.config = self.file = self._started_with = config
        self._on_changed = on_changed
        self.quota_topic = topic_source(config, on_changes=self._change_topic_rules)
        self.broker_quotas = broker_source(config, on_changes=self._change, wall_ms=wall_ms)
        # At most one of the two sources exists, as the key ``quotas_from`` says.
        self.source: QuotaSource | None = self.quota_topic or self.broker_quotas
        self.quota_manager = QuotaManager(config, on_changes=self._change_stored_rules, wall_ms=wall_ms)
        self.config = self._merged()
        self.tables = RuleTables(self.config)

    def apply(self, file: ProxyConfig) -> RuleTableChanges | None:
        """Enforce the rules of a reloaded file. Return which rules have changed; None if any may have changed."""
        # These keys take effect at the next start only. For example, what a bucket remembers for the usage log is fixed
        # when the bucket is made.
        started = self._started_with
        file = replace(file, usage_log=started.usage_log, quotas_from=started.quotas_from, store=started.store)
        changes: QuotaChanges | None = self.quota_manager.follow_file(file)
        if self.source is not None:
            changes = self.source.follow_file(file)
        self.config = self.file = file
        self.config = self._merged()
        if changes is None:
            self.tables.update(self.config)
            return None
        return self.tables.change(self.config, changes)

    def policy(self, listener: Listener) -> Policy:
        """Return the settings that the proxy needs while it serves one of a listener's clients."""
        return Policy(
            listener.max_frame_size_bytes,
            listener.enforcement or self.config.enforcement,
            listener.inter_broker,
            listener.sasl.oauthbearer_claim,
            self.administration(listener.name, is_inter_broker=listener.inter_broker),
            self.broker_quotas,
        )

    def administration(self, listener: str, *, is_inter_broker: bool) -> Administration | None:
        """Return what a listener's sessions need to answer requests about quotas; None if the broker answers them."""
        principals = self.config.principals
        # If the rules come from a topic or from the brokers, the proxy has no rules of its own that a client could
        # change (config.store_checks). This stays so after a reload.
        if not principals.admins or is_inter_broker or self.source is not None:
            return None
        return Administration(principals.admins, principals.forward_quota_requests, self.quota_manager, listener)

    def _merged(self) -> ProxyConfig:
        """Return the configuration with all quota rules that apply now, also those from outside the file."""
        if self.broker_quotas is not None:
            rules = self.broker_quotas.rules
            return replace(self.config, quotas=rules.quotas, ip_quotas=rules.ip_quotas)
        of_topic = () if self.quota_topic is None else self.quota_topic.rules
        rules = self.quota_manager.rules
        return replace(self.config, quotas=(*rules.quotas, *of_topic), ip_quotas=rules.ip_quotas)

    def _change_topic_rules(self, changes: Mapping[Entity, QuotaRule | None]) -> None:
        """Enforce changed rules of the quota topic, by entity. None in place of a rule removes the rule."""
        if self.quota_topic is not None:
            self.config = self._merged()
            self._change(changes, {})

    def _change_stored_rules(self, changes: RuleChanges, ips: IpChanges) -> None:
        """Enforce rules that a client has changed through the proxy, or that have begun or expired."""
        # If the rules come from the brokers, their source reports changes of the file's own rules as well.
        if self.broker_quotas is None:
            self._change(changes, ips)

    def _change(self, changes: RuleChanges, ips: IpChanges) -> None:
        self._on_changed(self.tables.change(self.config, QuotaChanges(changes, ips)))
