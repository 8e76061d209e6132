"""Reads and writes the arrays of topics in a follower's Fetch requests and in their responses.

    topics     array of { v0-12 string topic | v13+ uuid topic_id, array of partitions, [v12+ tags] }

From v12 on strings and arrays are compact.

Source: FetchRequest.json, FetchResponse.json (0 to 18) in Apache Kafka.
"""

from collections.abc import Callable, Iterable, Mapping
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

from kafka_quota_proxy.protocol.errors import TrailingBytes, Truncated
from kafka_quota_proxy.protocol.fetch import FIRST_FLEXIBLE, FIRST_TOPIC_ID
from kafka_quota_proxy.protocol.primitives import (
    NO_TAGS,
    Buffer,
    read_array_count,
    read_compact_array_count,
    read_string,
    skip,
    skip_tags,
    write_string,
    written_count,
)

# A function that reads the partitions of one topic. It takes the frame, the offset of the partitions' count, the API
# version and the topic, and returns the offset of their end.
ReadPartitions = Callable[[Buffer, int, int, bytes], int]


class Entry(NamedTuple):
    """The entry of one partition for a frame to be written.

    ``topic`` is the name or the id of its topic. ``parts`` are the bytes of the entry, in pieces to be joined.
    """

    topic: bytes
    parts: tuple[Buffer, ...]


def bounded(data: bytes, least: int, end: int) -> Buffer:
    """Return ``data`` up to ``end``. Raises Truncated if ``end`` is below ``least`` or beyond the end of the data."""
    if not least <= end <= len(data):
        raise Truncated(f"a Fetch frame of {len(data)} bytes ends at byte {end}")
    return data if end == len(data) else memoryview(data)[:end]


def read_topics(
    frame: Buffer, at: int, api_version: int, read_partitions: ReadPartitions
) -> tuple[dict[bytes, bytes], int]:
    """Read an array of topics. Return the tags of each topic that has any, and the offset of the end of the array."""
    tags: dict[bytes, bytes] = {}
    count, at = read_count(frame, at, api_version)
    for _ in range(count):
        if api_version >= FIRST_TOPIC_ID:
            end = skip(frame, at, 16)
            topic, at = bytes(frame[at:end]), end
        else:
            topic, at = read_string(frame, at, is_compact=api_version >= FIRST_FLEXIBLE)
        at = read_partitions(frame, at, api_version, topic)
        if api_version < FIRST_FLEXIBLE:
            continue
        if at < len(frame) and frame[at] == 0:
            at += 1
        else:
            end = skip_tags(frame, at)
            tags[topic], at = bytes(frame[at:end]), end
    return tags, at


def read_count(frame: Buffer, at: int, api_version: int) -> tuple[int, int]:
    """Read the number of elements of an array."""
    return read_compact_array_count(frame, at) if api_version >= FIRST_FLEXIBLE else read_array_count(frame, at)


def check_end(frame: Buffer, at: int, api_version: int) -> None:
    """Step over the tags that end a Fetch request or response. Raises TrailingBytes if more bytes follow."""
    if api_version >= FIRST_FLEXIBLE:
        at = skip_tags(frame, at)
    if at != len(frame):
        raise TrailingBytes(f"a Fetch frame has {len(frame) - at} bytes after its last field")


def written_topics(
    entries: Iterable[tuple[bytes, tuple[Buffer, ...]]], api_version: int, topic_tags: Mapping[bytes, bytes]
) -> list[Buffer]:
    """Return an array of topics as parts to be joined. Adjacent entries of one topic become one element.

    If a topic is written twice, only its first element gets its tags, because copies would make the frame longer.
    """
    has_ids, is_flexible = api_version >= FIRST_TOPIC_ID, api_version >= FIRST_FLEXIBLE
    tags = dict(topic_tags)
    written: list[Buffer] = [b""]
    topics = 0
    for topic, neighbours in groupby(entries, itemgetter(0)):
        topics += 1
        written.append(topic if has_ids else write_string(topic, is_compact=is_flexible))
        count_index = len(written)
        written.append(b"")
        count = 0
        for _, parts in neighbours:
            written += parts
            count += 1
        written[count_index] = written_count(count, is_flexible=is_flexible)
        if is_flexible:
            written.append(tags.pop(topic, NO_TAGS))
    written[0] = written_count(topics, is_flexible=is_flexible)
    return written
