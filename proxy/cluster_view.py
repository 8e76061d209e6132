"""What a cluster says of itself, as far as replication is concerned."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from config.model import Address
from config.throttled_replicas import ThrottledReplicas


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """One moment of it."""

    topic_names: Mapping[bytes, str] = field(default_factory=dict)
    racks: Mapping[int, str] = field(default_factory=dict)
    leader_rates: Mapping[int, float] = field(default_factory=dict)
    follower_rates: Mapping[int, float] = field(default_factory=dict)
    leader_replicas: Mapping[str, ThrottledReplicas] = field(default_factory=dict)
    follower_replicas: Mapping[str, ThrottledReplicas] = field(default_factory=dict)
    moving: frozenset[tuple[str, int]] = frozenset()
    node_ids: Mapping[Address, int] = field(default_factory=dict)
