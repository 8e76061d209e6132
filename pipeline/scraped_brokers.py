"""Tells apart the brokers whose client metrics a Prometheus has, by the labels of their series. Does no I/O.

A broker is usually the scraped instance. One exporter can show several brokers, and the series of a client then differ
in a further label, such as ``broker``. Any label counts, since exporters name them as they like. Only a replica label
tells nothing: it names one of several servers that scraped the same broker.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, TypeAlias

from kafka_quota_proxy.pipeline.client_metrics import ClientMetric, broker_of
from kafka_quota_proxy.pipeline.rate_samples import SampledBucket, Series, node_ids

# Those of Prometheus' operator, of the examples of Thanos (query, rule, receive), and the default of Cortex and Mimir.
REPLICA_LABELS: Final = (
    "prometheus_replica",
    "replica",
    "rule_replica",
    "ruler_replica",
    "thanos_ruler_replica",
    "receive_replica",
    "__replica__",
)

_Labels: TypeAlias = frozenset[tuple[str, str]]


class ScrapedSeries(NamedTuple):
    """A series of a client metric. ``labels`` are those that name neither the instance nor the client."""

    instance: str
    labels: Mapping[str, str]
    metric: ClientMetric
    samples: list[tuple[int, float]]


class ScrapedBrokers:
    """Names the broker of each series by its instance, with the labels that tell it apart: ``b:1{broker="2"}``.

    ``given`` contains node ids that the user knows, by name or instance. Brokers without one have numbers, in the order
    in which they are learnt, and of their names. ``replica_labels`` are added to those above.

    ``node_ids`` contains the node id of each broker by its name, ``numbered`` the brokers that only have a number, and
    ``telling`` the labels that tell the brokers of an instance apart.
    """

    def __init__(self, given: Mapping[str, int], *, replica_labels: Iterable[str] = ()) -> None:
        self.node_ids: dict[str, int] = {}
        self.numbered: set[str] = set()
        self.telling: dict[str, set[str]] = {}
        self._given = given
        self._replica_labels = {*REPLICA_LABELS, *replica_labels}
        self._first: dict[tuple[str, ClientMetric], _Labels] = {}
        self._origins: set[tuple[str, _Labels]] = set()
        self._has_news = False

    def learn(self, every: Iterable[ScrapedSeries]) -> None:
        """Find the labels in which series of one client at one instance differ."""
        for one in every:
            labels = self._without_replica(one.labels)
            if (one.instance, labels) not in self._origins:
                self._origins.add((one.instance, labels))
                self._has_news = True
            first = self._first.setdefault((one.instance, one.metric), labels)
            differing = {name for name, _ in labels ^ first}
            telling = self.telling.get(one.instance, set())
            if not differing <= telling:
                self.telling[one.instance] = telling | differing
                self._has_news = True

    def number(self) -> None:
        """Give a node id to each broker that has been learnt and has none."""
        if not self._has_news:
            return
        self._has_news = False
        without = set()
        for instance, labels in self._origins:
            name = self._name(instance, labels)
            node_id = self._known_id(name, instance, broker_of(dict(labels)))
            if node_id is not None:
                self.node_ids.setdefault(name, node_id)
            without.add(name)
        without -= self.node_ids.keys()
        names = without | self.node_ids.keys()
        every = node_ids(names, {**self._given, **self.node_ids})
        self.node_ids = {name: every[name] for name in names}
        self.numbered |= without

    def series(self, every: Iterable[ScrapedSeries]) -> list[Series]:
        """Return the series of each client at each broker, after they have been learnt and numbered."""
        return [
            Series(SampledBucket(name, metric.measured.kind, metric.user, metric.client_id), metric.measured, samples)
            for instance, labels, metric, samples in every
            for name in [self._name(instance, self._without_replica(labels))]
        ]

    def _known_id(self, name: str, instance: str, labelled: int | None) -> int | None:
        ids = [self._given.get(name), labelled if name != instance else None, self._given.get(instance), labelled]
        return next((node_id for node_id in ids if node_id is not None), None)

    def _without_replica(self, labels: Mapping[str, str]) -> _Labels:
        return frozenset((name, value) for name, value in labels.items() if name not in self._replica_labels)

    def _name(self, instance: str, labels: Iterable[tuple[str, str]]) -> str:
        telling = self.telling.get(instance, ())
        shown = [f'{name}="{value}"' for name, value in sorted(labels) if name in telling]
        return f"{instance}{{{','.join(shown)}}}" if shown else instance
