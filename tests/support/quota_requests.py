"""Makes random DescribeClientQuotas and AlterClientQuotas requests.

There are few names and values, so that requests are often about the same entity. Many requests are invalid.
"""

from random import Random
from typing import Final

from kafka_quota_proxy.protocol.client_quotas import (
    Alteration,
    AlterRequest,
    Component,
    DescribeRequest,
    EntityParts,
    Op,
)

TYPES: Final = ("user", "client-id", "ip", "", "other", "User", "Ünknown")
NAMES: Final = ("alice", "bob", "<default>", "", None, None, "user with spaces", "é\U0001f980")
IPS: Final = ("10.0.0.7", "::1", None, None, "not an ip", "", "192.0.2.1")
CLIENT_KEYS: Final = ("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate")
KEYS: Final = (*CLIENT_KEYS, *CLIENT_KEYS, "connection_creation_rate", "bad", "", "request_rate", "Ünknown")
VALUES: Final = (
    *(None, None, 1.0, 1024.0, 12.5, 1e-7, 1.0000005, 1.000002, 0.0, -0.0, -1.0, 1e-300, 2147483647.0, 2147483648.0),
    *(9.223372036854775e18, 2.0**63, 1e19, 1e300, float("-inf")),
)
# Kafka before 4.4 accepts and stores these values.


def some_entity(random: Random) -> EntityParts:
    """Return an entity, which is usually valid."""
    shape = random.choice(("user", "client-id", "user client-id", "client-id user", "ip", "any"))
    if shape == "any":
        return tuple(_part(random, random.choice(TYPES)) for _ in range(random.randrange(5)))
    return tuple(_part(random, entity_type) for entity_type in shape.split())


def _part(random: Random, entity_type: str) -> tuple[str, str | None]:
    return entity_type, random.choice(IPS if entity_type == "ip" else NAMES)


def some_ops(random: Random, entity: EntityParts) -> tuple[Op, ...]:
    """Return changes of an entity. Their keys are usually valid."""
    own = ("connection_creation_rate",) if any(kind == "ip" for kind, _ in entity) else CLIENT_KEYS
    keys = own if random.random() < 0.7 else KEYS
    count = random.choice((1, 1, 2, 3, 0, 6))
    values = VALUES if random.random() < 0.4 else (None, 1.0, 1024.0, 2048.0)
    chosen = random.choices(keys, k=count) if random.random() < 0.2 else random.sample(keys, min(count, len(keys)))
    return tuple(Op(key, random.choice(values)) for key in chosen)


def some_alter(random: Random, version: int) -> AlterRequest:
    """Return a request that changes up to six entities."""
    alterations = []
    for _ in range(random.choice((0, 1, 1, 2, 3, 6))):
        entity = some_entity(random)
        alterations.append(Alteration(entity, some_ops(random, entity)))
    return AlterRequest(version, 7, tuple(alterations), random.random() < 0.2)


def some_describe(random: Random, version: int) -> DescribeRequest:
    """Return a request with a filter of up to three components."""
    types = TYPES if random.random() < 0.3 else TYPES[:3]
    components = []
    for _ in range(random.choice((0, 1, 1, 2, 2, 3))):
        entity_type, name = _part(random, random.choice(types))
        if random.random() < 0.8:
            match_type = (1 if name is None else 0) if random.random() < 0.6 else 2
            components.append(Component(entity_type, match_type, None if match_type == 2 else name))
        else:
            components.append(Component(entity_type, random.choice((0, 1, 2, 3, -1)), name))
    return DescribeRequest(version, 7, tuple(components), random.random() < 0.5)
