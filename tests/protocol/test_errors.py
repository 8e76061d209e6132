"""Tests the class hierarchy of protocol errors."""

import inspect
import re

from kafka_quota_proxy.protocol import errors
from kafka_quota_proxy.protocol.errors import ProtocolError
from tests.support.cases import each_case

LEAVES = [
    cls
    for _, cls in inspect.getmembers(errors, inspect.isclass)
    if issubclass(cls, ProtocolError) and not cls.__subclasses__()
]


@each_case("leaf", LEAVES)
def test_each_leaf_has_its_own_reason_in_snake_case(leaf: type[ProtocolError]) -> None:
    others = {cls.reason for cls in LEAVES if cls is not leaf}

    assert re.fullmatch(r"[a-z]+(_[a-z]+)*", leaf.reason)
    assert leaf.reason not in others
