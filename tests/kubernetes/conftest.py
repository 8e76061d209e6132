"""A Kubernetes cluster for all tests of this folder, which ``make test-kubernetes`` runs.

Where its programs are built already, ``make test-kafka`` runs those that need no node.
"""

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from tests.kubernetes.cluster import Cluster
from tests.kubernetes.programs import BUILD_TIMEOUT_S, has_control_plane

_numbers = count(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    is_quick = has_control_plane()
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.kubernetes)
            if is_quick and item.path.name == "test_control_plane.py":
                item.add_marker(pytest.mark.kafka)
                item.add_marker(pytest.mark.xdist_group("kubernetes"))
            # The first run builds Kubernetes.
            item.add_marker(pytest.mark.timeout(2 * BUILD_TIMEOUT_S))


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A control plane, which takes objects. It has no node before a test asks for one."""
    with Cluster() as cluster:
        yield cluster


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    """A namespace that admits only restricted pods."""
    name = f"test-{next(_numbers)}"
    cluster.restricted_namespace(name)
    yield name
    cluster.kubectl("delete", "namespace", name, "--wait=false")
