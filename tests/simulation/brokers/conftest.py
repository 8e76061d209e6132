"""A cluster of three brokers with one topic, and a client of the first."""

import pytest

from tests.simulation.brokers.cluster import Cluster
from tests.simulation.brokers.talk import Client
from tests.simulation.world import World


@pytest.fixture
def world() -> World:
    return World(1)


@pytest.fixture
def cluster(world: World) -> Cluster:
    cluster = Cluster(world, [1, 2, 3])
    cluster.start()
    cluster.create_topic("t", 2, replicas=[[1, 2], [1, 3]])
    return cluster


@pytest.fixture
def client(world: World, cluster: Cluster) -> Client:
    return Client(world, ("10.0.1.1", 9092))
