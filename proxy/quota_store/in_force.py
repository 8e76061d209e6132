"""Which rules hold: those of the file, and of the store those that are about other entities."""

from collections import ChainMap
from collections.abc import Iterable, Mapping
from typing import Final

from config.errors import UnitError
from config.model import CLIENT_QUOTAS, DEFAULT, IpRule, ProxyConfig, QuotaRule
from config.units import parse_ip
from proxy.quota.entity import Entity as RuleEntity
from proxy.quota.entity import bounded
from proxy.quota_store.alter import Change
from proxy.quota_store.entity import Entity, StoredRule
from proxy.quota_store.journal import apply

_OF_IPS: Final = "connection_creation_rate"

# What hosts are called, and their addresses.
Addresses = Mapping[str, tuple[str, ...]]


class InForce:
    """The rules of both.

    Attributes:
        name: Of the store, where a rule's source is told.
        stored: What the store has.
        sources: The entities of the file, and FILE:LINE.
        rules: Of every entity, as they are told; of one that both have, the file's.
    """

    def __init__(self, config: ProxyConfig, *, name: str) -> None:
        self.stored: dict[Entity, StoredRule] = {}
        self.name = name
        self._addresses: Addresses = {}
        # Kept as they are asked for: a change is not to cost what there are of the others.
        self._quota_rules: dict[Entity, QuotaRule] = {}
        self._of_ips: dict[Entity, StoredRule] = {}
        self.follow_file(config)

    def follow_file(self, config: ProxyConfig) -> tuple[str, ...]:
        """Take the file's rules from now on; return what is to be said: which entities of the store it has, too."""
        self._file = config
        file_rules = {Entity(rule.user, rule.client_id): rule for rule in config.quotas}
        ip_rules = {Entity(ip=rule.ip): rule for rule in config.ip_quotas}
        self.sources = {entity: rule.source for entity, rule in file_rules.items()}
        self.sources |= {entity: rule.source for entity, rule in ip_rules.items()}
        told = {entity: _of_file(rule) for entity, rule in file_rules.items()}
        told |= {
            entity: StoredRule(limits={_OF_IPS: rule.connection_creation_rate}) for entity, rule in ip_rules.items()
        }
        self.rules: Mapping[Entity, StoredRule] = ChainMap(told, self.stored)
        self._quota_rules = {}
        self._keep(Change(entity, rule) for entity, rule in self.stored.items())
        return tuple(
            f"{source}: {entity} has quotas in {self.name}, too; those of the file hold"
            for entity, source in self.sources.items()
            if entity in self.stored
        )

    def know(self, addresses: Addresses) -> None:
        """Take it that these hosts have these addresses."""
        self._addresses = {**self._addresses, **addresses}

    @property
    def hosts(self) -> frozenset[str]:
        """Return the hosts of the store's rules whose addresses are not known."""
        names = (entity.ip for entity in self._of_ips if isinstance(entity.ip, str))
        return frozenset(name for name in names if _literal(name) is None) - self._addresses.keys()

    @property
    def quotas(self) -> tuple[QuotaRule, ...]:
        """Return the rules of users and client-ids that hold."""
        return (*self._file.quotas, *self._quota_rules.values())

    @property
    def ip_quotas(self) -> tuple[IpRule, ...]:
        """Return the rules of addresses that hold, each address once. Of several names of one, the last counts."""
        limits: dict[Entity, IpRule] = {}
        for entity, rule in self._of_ips.items():
            for ip in self._ips(entity):
                if Entity(ip=ip) not in self.sources:
                    limits[Entity(ip=ip)] = IpRule(
                        ip=ip, connection_creation_rate=rule.limits[_OF_IPS], source=self.name
                    )
        return (*self._file.ip_quotas, *limits.values())

    def change(self, changes: Iterable[Change]) -> tuple[dict[RuleEntity, QuotaRule | None], bool]:
        """Take what has changed in the store.

        Returns:
            The rules of users and client-ids that hold from now on, or hold no more; and whether any of addresses do.
        """
        changes = tuple(changes)
        apply(self.stored, changes)
        self._keep(changes)
        rules = {
            _key(entity): self._quota_rules.get(entity)
            for entity, _ in changes
            if entity.ip is None and entity not in self.sources
        }
        return rules, any(entity.ip is not None for entity, _ in changes)

    def _keep(self, changes: Iterable[Change]) -> None:
        for entity, rule in changes:
            if entity.ip is not None:
                apply(self._of_ips, [Change(entity, rule)])
            elif rule is None:
                self._quota_rules.pop(entity, None)
            elif entity not in self.sources:
                self._quota_rules[entity] = self._quota_rule(entity, rule)

    def _quota_rule(self, entity: Entity, rule: StoredRule) -> QuotaRule:
        return QuotaRule(user=entity.user, client_id=entity.client_id, **rule.limits, source=self.name)  # type: ignore[arg-type]

    def _ips(self, entity: Entity) -> Iterable[str]:
        if entity.ip is DEFAULT:
            return (DEFAULT,)  # type: ignore[return-value]
        if not isinstance(entity.ip, str):
            return ()
        literal = _literal(entity.ip)
        return self._addresses.get(entity.ip, ()) if literal is None else (literal,)


def _of_file(rule: QuotaRule) -> StoredRule:
    limits = ((key, getattr(rule, key)) for key in CLIENT_QUOTAS)
    return StoredRule(limits={key: float(limit) for key, limit in limits if limit is not None})


def _key(entity: Entity) -> RuleEntity:
    user, client_id = (bounded(name) if isinstance(name, str) else name for name in (entity.user, entity.client_id))
    return user, client_id


def _literal(ip: str) -> str | None:
    try:
        return parse_ip(ip)
    except UnitError:
        return None
