"""Series of one exporter become series of brokers."""

import pytest

from kafka_quota_proxy.pipeline.client_metrics import RATE, ClientMetric, Measured
from kafka_quota_proxy.pipeline.scraped_brokers import REPLICA_LABELS, ScrapedBrokers, ScrapedSeries


def scraped(instance: str = "jmx:1", user: str = "alice", **labels: str) -> ScrapedSeries:
    return ScrapedSeries(instance, labels, ClientMetric(Measured("produce", RATE), user, ""), [(0, 1.0)])


def names(brokers: ScrapedBrokers, *every: ScrapedSeries) -> list[str]:
    """Return the broker's name of each series."""
    brokers.learn(every)
    brokers.number()
    return [one.bucket.instance for one in brokers.series(every)]


def test_a_label_in_which_the_series_of_one_client_differ_tells_brokers_apart() -> None:
    brokers = ScrapedBrokers({})

    found = names(
        brokers,
        scraped(node="b", job="kafka"),
        scraped(node="a", job="kafka"),
        scraped(user="bob", node="b", job="kafka"),
        scraped("other:1", node="c", job="kafka"),
    )

    assert found == ['jmx:1{node="b"}', 'jmx:1{node="a"}', 'jmx:1{node="b"}', "other:1"]
    assert brokers.node_ids == {'jmx:1{node="a"}': 1, 'jmx:1{node="b"}': 2, "other:1": 3}
    assert brokers.numbered == brokers.node_ids.keys()


def test_labels_that_differ_between_clients_only_tell_no_brokers_apart() -> None:
    assert names(ScrapedBrokers({}), scraped(team="x"), scraped(user="bob", team="y")) == ["jmx:1", "jmx:1"]


@pytest.mark.parametrize("label", [*REPLICA_LABELS, "own"])
def test_series_that_differ_in_a_replica_label_are_of_one_broker(label: str) -> None:
    brokers = ScrapedBrokers({}, replica_labels=["own"])

    assert names(brokers, scraped(**{label: "0"}), scraped(**{label: "1"})) == ["jmx:1", "jmx:1"]


def test_node_ids_are_given_or_labelled_or_numbers() -> None:
    """A label that tells brokers apart counts more than a node id for the whole instance."""
    brokers = ScrapedBrokers({"jmx:1": 9, 'jmx:1{broker="3"}': 8, "c:1": 7, "d:1": 6})

    names(brokers, scraped(broker="3"), scraped(broker="0"), scraped("c:1", broker="5"), scraped("e:1"))
    names(brokers, scraped("a:1"), scraped("b:1", broker="2"))

    assert brokers.node_ids == {
        'jmx:1{broker="3"}': 8, 'jmx:1{broker="0"}': 0, "c:1": 7, "e:1": 1, "a:1": 3, "b:1": 2,
    }  # fmt: skip
    assert brokers.numbered == {"e:1", "a:1"}


def test_what_is_learnt_later_holds_from_then_on() -> None:
    """The pieces of a server's answer come one after the other."""
    brokers = ScrapedBrokers({})

    first = names(brokers, scraped(node="a"))
    second = names(brokers, scraped(node="a"), scraped(node="b"))
    third = names(brokers, scraped(node="b"))

    assert (first, second, third) == (["jmx:1"], ['jmx:1{node="a"}', 'jmx:1{node="b"}'], ['jmx:1{node="b"}'])
    assert brokers.node_ids == {"jmx:1": 1, 'jmx:1{node="a"}': 2, 'jmx:1{node="b"}': 3}
