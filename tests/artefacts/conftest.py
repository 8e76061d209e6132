"""Builds what a release consists of, once for all tests of this folder.

The compiled wheel is that of ``make compiled``, which builds it as a release does. The image takes minutes too: it is
started with the first test, and awaited by the first that needs it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.artefacts.support import images
from tests.artefacts.support.distributions import REPOSITORY, built, wait_for
from tests.end_to_end.support.artifacts import KAFKA_4
from tests.end_to_end.support.kafka import Kafka
from tests.end_to_end.support.processes import Process, remove_scratch_of_dead_runs

_PATIENCE_S = 1_800


def pytest_configure() -> None:
    remove_scratch_of_dead_runs()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents and item.get_closest_marker("long") is None:
            item.add_marker(pytest.mark.artefacts)
            item.add_marker(pytest.mark.timeout(2 * _PATIENCE_S))


@dataclass(frozen=True, slots=True)
class Builds:
    """Both wheels, and the build of the image."""

    wheel: Path
    compiled_wheel: Path
    image: Process


@pytest.fixture(scope="session")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The sdist and the pure wheel."""
    return built(tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="session")
def sdist(distributions: tuple[Path, Path]) -> Path:
    return distributions[0]


@pytest.fixture(scope="session")
def builds(distributions: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Builds]:
    image = images.started_build(tmp_path_factory.mktemp("image"))
    (compiled_wheel,) = (REPOSITORY / "build" / "compiled").glob("*.whl")
    yield Builds(distributions[1], compiled_wheel, image)
    image.kill()


@pytest.fixture(scope="session")
def image(builds: Builds) -> images.Image:
    wait_for(builds.image, timeout_s=_PATIENCE_S)
    return images.Image.inspected()


@pytest.fixture(scope="session")
def kafka() -> Iterator[Kafka]:
    with Kafka(KAFKA_4) as kafka:
        yield kafka
