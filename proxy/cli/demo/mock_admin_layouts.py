"""The layouts of the admin requests that ``mock_admin`` answers, and of their responses.

The newest versions without compact strings suffice for all clients. Where Kafka has none, the layout is flexible: it
has compact strings and tagged fields (KIP-482).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from aiokafka.protocol import admin
from aiokafka.protocol.types import (
    Array,
    Boolean,
    CompactArray,
    CompactString,
    Float64,
    Int8,
    Int16,
    Int32,
    Schema,
    String,
    TaggedFields,
)


@dataclass(frozen=True)
class Layout:
    """The layout of some versions of an API."""

    api_key: int
    api: str
    versions: range
    request: Any  # a Schema; aiokafka has no types
    response: Any
    is_flexible: bool = False


_STRING: Final = String("utf-8")
_COMPACT_STRING: Final = CompactString("utf-8")
_TAGS: Final = ("tags", TaggedFields)
_ALTERED_ENTITY: Final = ("entity", Array(("entity_type", _STRING), ("entity_name", _STRING)))
_ALTER_CLIENT_QUOTAS: Final = Layout(
    49,
    "AlterClientQuotas",
    range(1),
    Schema(
        ("entries", Array(_ALTERED_ENTITY, ("ops", Array(("key", _STRING), ("value", Float64), ("remove", Boolean))))),
        ("validate_only", Boolean),
    ),
    Schema(
        ("throttle_time_ms", Int32),
        ("entries", Array(("error_code", Int16), ("error_message", _STRING), _ALTERED_ENTITY)),
    ),
)
_INCREMENTAL_ALTER_CONFIGS: Final = Layout(
    44,
    "IncrementalAlterConfigs",
    range(1),
    Schema(
        (
            "resources",
            Array(
                ("resource_type", Int8),
                ("resource_name", _STRING),
                ("configs", Array(("name", _STRING), ("operation", Int8), ("value", _STRING))),
            ),
        ),
        ("validate_only", Boolean),
    ),
    admin.AlterConfigsResponse_v0.SCHEMA,
)


def _elect_leaders(version: int, *, is_flexible: bool) -> Layout:
    array, string, tags = (CompactArray, _COMPACT_STRING, [_TAGS]) if is_flexible else (Array, _STRING, [])
    result = array(("partition", Int32), ("error_code", Int16), ("error_message", string), *tags)
    return Layout(
        43,
        "ElectLeaders",
        range(version, version + 1),
        Schema(
            ("election_type", Int8),
            ("topics", array(("topic", string), ("partitions", array(Int32)), *tags)),
            ("timeout_ms", Int32),
            *tags,
        ),
        Schema(
            ("throttle_time_ms", Int32),
            ("error_code", Int16),
            ("topics", array(("topic", string), ("partitions", result), *tags)),
            *tags,
        ),
        is_flexible,
    )


def _alter_partition_reassignments(version: int) -> Layout:
    """Return the layout of v0, or that of v1, which has a flag more."""
    request, response = (
        list(zip(schema.names, schema.fields, strict=True))
        for schema in (
            admin.AlterPartitionReassignmentsRequest_v0.SCHEMA,
            admin.AlterPartitionReassignmentsResponse_v0.SCHEMA,
        )
    )
    flag = [("allow_replication_factor_change", Boolean)] * version
    return Layout(
        45,
        "AlterPartitionReassignments",
        range(version, version + 1),
        Schema(request[0], *flag, *request[1:]),
        Schema(response[0], *flag, *response[1:]),
        is_flexible=True,
    )


def _of_aiokafka(api: str, versions: range, *, is_flexible: bool = False) -> Layout:
    """Return the layout that aiokafka has for these versions. It is the same for all of them."""
    request = getattr(admin, f"{api}Request_v{versions[0]}")
    return Layout(request.API_KEY, api, versions, request.SCHEMA, request.RESPONSE_TYPE.SCHEMA, is_flexible)


LAYOUTS: Final = (
    _of_aiokafka("CreateTopics", range(2, 5)),
    _of_aiokafka("DeleteTopics", range(1, 4)),
    _of_aiokafka("DescribeConfigs", range(1, 3)),
    _of_aiokafka("AlterConfigs", range(2)),
    _of_aiokafka("CreatePartitions", range(2)),
    _elect_leaders(1, is_flexible=False),
    _elect_leaders(2, is_flexible=True),
    _INCREMENTAL_ALTER_CONFIGS,
    _alter_partition_reassignments(0),
    _alter_partition_reassignments(1),
    _of_aiokafka("ListPartitionReassignments", range(1), is_flexible=True),
    _of_aiokafka("DescribeClientQuotas", range(1)),
    _ALTER_CLIENT_QUOTAS,
)
