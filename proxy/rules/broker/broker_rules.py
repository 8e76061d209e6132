"""Converts a broker's client quotas to rules, and finds out which rules have changed since the last reading."""

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from kafka_quota_proxy.config.addresses import not_an_ip
from kafka_quota_proxy.config.units import UNLIMITED
from kafka_quota_proxy.protocol.client_quotas import Described, DescribeResponse
from kafka_quota_proxy.proxy.rules.errors import CLUSTER_AUTHORIZATION_FAILED, NONE
from kafka_quota_proxy.proxy.rules.model import IP, Entity, StoredRule, entity_of, is_known, keys_of

# The highest number of entities. Each takes about 1 kB at most.
MOST_ENTITIES: Final = 200_000
# An infinite limit, or NaN, limits nothing, but it overrides limits of less specific entities.
_NO_LIMIT: Final = float(UNLIMITED)


class RefusedError(Exception):
    """Raised if a broker refuses to return its quotas, or if its response cannot be used.

    If ``is_lasting`` is true, the error continues until the operator removes the cause, such as a missing permission.
    """

    def __init__(self, message: str, *, is_lasting: bool = False) -> None:
        super().__init__(message)
        self.is_lasting = is_lasting


class ParsedQuotas(NamedTuple):
    """The quotas of a broker, as one rule for each entity.

    ``passed_over`` contains a message for each kind of quota that the proxy does not support and therefore ignores.
    """

    rules: Mapping[Entity, StoredRule]
    passed_over: tuple[str, ...]


def rules_of(response: DescribeResponse, *, most: int = MOST_ENTITIES) -> ParsedQuotas:
    """Convert a broker's DescribeClientQuotas response to rules for at most ``most`` entities.

    Raises:
        RefusedError: The response contains an error.
    """
    if response.error_code != NONE:
        raise _refusal(response)
    rules: dict[Entity, StoredRule] = {}
    passed_over: dict[str, None] = {}
    for described in response.entries or ():
        names = dict(described.entity)
        if not is_known(names):
            passed_over[_not_supported(described, names)] = None
            continue
        entity = entity_of(names)
        if len(rules) >= most and entity not in rules:
            passed_over[f"there are more than {most} entities: the others have no rule at this proxy"] = None
            break
        limits = dict(_limits(entity, described.values, passed_over))
        if limits:
            rules[entity] = StoredRule(limits=limits)
    return ParsedQuotas(rules, tuple(passed_over))


def in_force(value: float) -> float:
    """Return the limit that the proxy applies if a broker's quota has the given value.

    The result for infinity and NaN is the highest possible limit. The result for any other value is this value.
    """
    return value if math.isfinite(value) else _NO_LIMIT


def _refusal(response: DescribeResponse) -> RefusedError:
    error = f"error {response.error_code}" + (f" ({response.error_message})" if response.error_message else "")
    if response.error_code == CLUSTER_AUTHORIZATION_FAILED:
        return RefusedError(
            f"it may not read quotas: {error}. Its user needs DescribeConfigs on the cluster: kafka-acls.sh --add "
            "--allow-principal User:NAME --operation DescribeConfigs --cluster; the user is sasl_username, or that of "
            "the certificate, under quotas_from.broker, else ANONYMOUS",
            is_lasting=True,
        )
    return RefusedError(f"the broker answers with {error}")


def _not_supported(described: Described, names: Mapping[str, str | None]) -> str:
    ip = names.get(IP)
    if ip is not None and len(names) == 1:
        return f"the quotas of ip {ip}, as {not_an_ip(ip)}"
    types = " and ".join(repr(entity_type) for entity_type, _ in described.entity) or "no type"
    return f"an entity of {types}, which is not supported"


def _limits(
    entity: Entity, values: Iterable[tuple[str, float]], passed_over: dict[str, None]
) -> Iterator[tuple[str, float]]:
    """Yield the valid limits of an entity. Add a message to ``passed_over`` for each value that is skipped."""
    known = keys_of(entity)
    # Brokers with ZooKeeper may have values of 0 and less, which Kafka refuses today.
    for key, value in values:
        if key not in known:
            passed_over[f"the unknown key {key}"] = None
        elif value > 0 or math.isnan(value):
            yield key, in_force(value)
        elif value == 0 and entity.ip is not None:
            yield key, value  # 0 connections per second: no connection is admitted
        else:
            passed_over[f"{key}={value:g} of {entity}: is not a rate above 0"] = None
