"""The files of a reassignment: Kafka's plan, and how large its partitions are."""

import json
from typing import Final

from kafka_quota_proxy.config.units import parse_size
from kafka_quota_proxy.pipeline.errors import InputError
from kafka_quota_proxy.pipeline.rebalance import Partition
from kafka_quota_proxy.pipeline.tables import Reader, csv_lines, text_of, whole

_COLUMNS: Final = ("topic", "partition", "leader", "replicas", "size_bytes", "incoming_byte_rate")


def read_plan(path: str) -> dict[tuple[str, int], list[int]]:
    """Return the replicas that a plan of kafka-reassign-partitions.sh gives each partition.

    Raises:
        InputError: it is no such plan.
    """
    try:
        found = json.loads(text_of(path))
        plan = {
            (str(one["topic"]), int(one["partition"])): [int(node) for node in one["replicas"]]
            for one in found["partitions"]
        }
    except json.JSONDecodeError as error:
        raise InputError([f"{path}:{error.lineno}: is no JSON: {error.msg}"]) from error
    except (KeyError, TypeError, ValueError) as error:
        shape = '{"version": 1, "partitions": [{"topic": …, "partition": …, "replicas": […]}, …]}'
        raise InputError([f"{path}:1: is no plan: {shape}"]) from error
    return plan


def read_sizes(path: str) -> dict[tuple[str, int], Partition]:
    """Return the partitions of a CSV; its ``replicas`` are node ids with a space between them.

    Raises:
        InputError: with every fault.
    """
    reader = Reader()
    found = {}
    for line in csv_lines(path, columns=_COLUMNS):
        partition, leader = (reader.value(line, name, whole) for name in ("partition", "leader"))
        size, incoming = (reader.value(line, name, parse_size) for name in ("size_bytes", "incoming_byte_rate"))
        replicas = reader.value(line, "replicas", lambda text: frozenset(map(whole, text.split())))
        if isinstance(replicas, frozenset) and leader not in replicas:
            reader.faults.append(f"{line.where}: leader: {leader} is none of the replicas")
        if None not in (partition, leader, size, incoming, replicas):
            found[line.values["topic"], partition] = Partition(leader, replicas, size, incoming)  # type: ignore[arg-type]
    reader.end()
    return found  # type: ignore[return-value]
