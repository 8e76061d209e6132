"""Which rules hold: those of the file, and of the store those that are about other entities."""

from collections import ChainMap
from collections.abc import Iterable, Mapping, Set
from typing import Final, TypeVar

from config.model import CLIENT_QUOTAS, IpRule, ProxyConfig, QuotaRule
from proxy.quota.changes import Changes, Ip
from proxy.quota.entity import Entity as RuleEntity
from proxy.quota.entity import bounded
from proxy.quota_store.addresses import Addresses, AddressesInForce
from proxy.quota_store.alter import Change
from proxy.quota_store.entity import Entity, StoredRule
from proxy.quota_store.journal import apply

_OF_IPS: Final = "connection_creation_rate"

K = TypeVar("K")
V = TypeVar("V")


class InForce:
    """The rules of both. What a change costs depends on what it changes, not on how much there is in the store.

    Attributes:
        name: Of the store, where a rule's source is told.
        stored: What the store has.
        sources: The entities of the file, and FILE:LINE.
        rules: Of every entity, as they are told; of one that both have, the file's.
    """

    def __init__(self, config: ProxyConfig, *, name: str) -> None:
        self.stored: dict[Entity, StoredRule] = {}
        self.name = name
        self._file_rules: dict[Entity, QuotaRule] = {}
        self._file_ips: dict[Ip, IpRule] = {}
        self._told: dict[Entity, StoredRule] = {}
        self._quota_rules: dict[Entity, QuotaRule] = {}
        self._addresses = AddressesInForce(name=name)
        self.follow_file(config)

    def follow_file(self, config: ProxyConfig) -> Changes:
        """Take the file's rules from now on; return what changes by that."""
        rules = {Entity(rule.user, rule.client_id): rule for rule in config.quotas}
        ips = {rule.ip: rule for rule in config.ip_quotas}
        changed, changed_ips = _difference(self._file_rules, rules), _difference(self._file_ips, ips)
        self._file_rules, self._file_ips = rules, ips
        self.sources = {entity: rule.source for entity, rule in rules.items()}
        self.sources |= {Entity(ip=ip): rule.source for ip, rule in ips.items()}
        told = {entity: _of_file(rule) if entity in changed else self._told[entity] for entity, rule in rules.items()}
        told |= {Entity(ip=ip): StoredRule(limits={_OF_IPS: rule.connection_creation_rate}) for ip, rule in ips.items()}
        # Another one: a thread may be reading the one before.
        self._told = told
        self.rules: Mapping[Entity, StoredRule] = ChainMap(told, self.stored)
        for entity in changed:
            self._keep(entity, self.stored.get(entity))
        self._addresses.follow_file(ips.keys())
        return Changes(
            {_key(entity): rules.get(entity) or self._quota_rules.get(entity) for entity in changed},
            {ip: ips.get(ip) or self._addresses.rules.get(ip) for ip in changed_ips},
        )

    @property
    def doubles(self) -> tuple[str, ...]:
        """Return what is to be said of the file: which entities of the store it has, too."""
        return tuple(
            f"{source}: {entity} has quotas in {self.name}, too; those of the file hold"
            for entity, source in self.sources.items()
            if entity in self.stored
        )

    def know(self, addresses: Addresses) -> Changes:
        """Take it that these hosts have these addresses; return what changes by that."""
        return Changes({}, self._addresses.know(addresses))

    @property
    def unknown_hosts(self) -> Set[str]:
        """Return the hosts whose limits do not hold, for nobody knows their addresses."""
        return self._addresses.unknown_hosts

    @property
    def quotas(self) -> tuple[QuotaRule, ...]:
        """Return the rules of users and client-ids that hold."""
        return (*self._file_rules.values(), *self._quota_rules.values())

    @property
    def ip_quotas(self) -> tuple[IpRule, ...]:
        """Return the rules of addresses that hold, each address once."""
        return (*self._file_ips.values(), *self._addresses.rules.values())

    def change(self, changes: Iterable[Change], addresses: Addresses | None = None) -> Changes:
        """Take what has changed in the store, and where the hosts in it are; return which rules that changes."""
        changes = tuple(changes)
        apply(self.stored, changes)
        ips: dict[Ip, IpRule | None] = {}
        for entity, rule in changes:
            if entity.ip is None:
                self._keep(entity, rule)
            else:
                rate = None if rule is None else rule.limits[_OF_IPS]
                ips |= self._addresses.change(entity.ip, rate, addresses or {})
        rules = {
            _key(entity): self._quota_rules.get(entity)
            for entity, _ in changes
            if entity.ip is None and entity not in self.sources
        }
        return Changes(rules, ips)

    def _keep(self, entity: Entity, rule: StoredRule | None) -> None:
        if rule is None or entity in self.sources:
            self._quota_rules.pop(entity, None)
        else:
            self._quota_rules[entity] = self._quota_rule(entity, rule)

    def _quota_rule(self, entity: Entity, rule: StoredRule) -> QuotaRule:
        return QuotaRule(user=entity.user, client_id=entity.client_id, **rule.limits, source=self.name)  # type: ignore[arg-type]


def _difference(before: Mapping[K, V], after: Mapping[K, V]) -> set[K]:
    """Return of which keys the values differ, or are not there."""
    return {key for key, value in after.items() if before.get(key) != value} | (before.keys() - after.keys())


def _of_file(rule: QuotaRule) -> StoredRule:
    limits = ((key, getattr(rule, key)) for key in CLIENT_QUOTAS)
    return StoredRule(limits={key: float(limit) for key, limit in limits if limit is not None})


def _key(entity: Entity) -> RuleEntity:
    user, client_id = (bounded(name) if isinstance(name, str) else name for name in (entity.user, entity.client_id))
    return user, client_id
