"""Tests that the trace of an AlterClientQuotas request covers its way from the connection to the store and back."""

import asyncio
from pathlib import Path

from bench.trace_alter import Trace, alter_request, trace
from kafka_quota_proxy.protocol.client_quotas import Alteration, Op
from tests.support.quota_request_frames import read_alter_request


def test_a_request_for_one_user() -> None:
    request = read_alter_request(alter_request("bob", 2.5))
    assert request.alterations == (Alteration((("user", "bob"),), (Op("producer_byte_rate", 2.5),)),)


def test_a_move_is_a_call_in_another_module() -> None:
    found = Trace((("a", "f"), ("a", "g"), ("b", "f"), ("a", "f")))
    assert (found.modules, found.moves) == (2, 2)


def test_the_way_from_the_connection_to_the_store_and_back(tmp_path: Path) -> None:
    found = asyncio.run(trace(tmp_path))
    names = [name for _, name in found.calls]
    assert names[0] == "ClientConnection.data_received"
    assert names.index("RuleDatabase.write") < names.index("ClientConnection.take_turn") < len(names)
    assert names.count("RuleDatabase.write") == 1
