"""Tests the coordinators of FindCoordinator responses, against kio."""

from dataclasses import replace

import pytest
from hypothesis import given
from kio.schema.errors import ErrorCode

from tests.protocol.support import kio_messages
from tests.protocol.support.broker_lists import (
    ADVERTISED,
    FIND_COORDINATOR,
    NODES,
    as_advertised,
    broker,
    decoded,
    rewritten,
    versions,
)
from tests.support.cases import FEW_EXAMPLES, each_case

COORDINATOR_NOT_AVAILABLE = 15


@each_case("version", [version for version in versions(FIND_COORDINATOR) if version < 4])
@each_case("node_id, host", [(3, "broker3"), (4, "broker4"), (-1, "")])
def test_coordinator_gets_its_advertised_address_or_is_not_available(version: int, node_id: int, host: str) -> None:
    kind = kio_messages.response_class(FIND_COORDINATOR, version)
    message = kio_messages.example(kind, {"node_id": node_id, "host": host, "port": 9092 if host else -1})

    after = decoded(rewritten(kio_messages.response_frame(message), FIND_COORDINATOR, version), kind)

    if node_id in ADVERTISED:
        assert after == as_advertised(message, "node_id")
    else:
        error_code = ErrorCode(COORDINATOR_NOT_AVAILABLE) if host else message.error_code
        none = {"node_id": -1, "host": "", "port": -1, "error_code": error_code}
        assert after == replace(message, **none)


@pytest.mark.parametrize("version", [version for version in versions(FIND_COORDINATOR) if version >= 4])
@FEW_EXAMPLES
@given(nodes=NODES)
def test_each_coordinator_gets_its_advertised_address_or_is_not_available(
    version: int, nodes: list[tuple[int, str, int]]
) -> None:
    kind = kio_messages.response_class(FIND_COORDINATOR, version)
    coordinator_kind = kind.__annotations__["coordinators"].__args__[0]
    coordinators = tuple(broker(coordinator_kind, *node) for node in nodes)
    message = kio_messages.example(kind, {"coordinators": coordinators})

    after = decoded(rewritten(kio_messages.response_frame(message), FIND_COORDINATOR, version), kind)

    for before, now in zip(coordinators, after.coordinators, strict=True):
        if before.node_id in ADVERTISED:
            assert now == as_advertised(before, "node_id")
        else:
            error_code = before.error_code if before.node_id == -1 else ErrorCode(COORDINATOR_NOT_AVAILABLE)
            none = {"node_id": -1, "host": "", "port": -1, "error_code": error_code}
            assert now == replace(before, **none)
