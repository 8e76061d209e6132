"""kio, which is generated from Kafka's message files, reads the bench's frames to the last byte."""

import pytest
from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader

from bench.frames import (
    FETCH,
    FETCH_VERSION,
    METADATA,
    NEW_FETCH_VERSION,
    NEW_PRODUCE_VERSION,
    PRODUCE,
    PRODUCE_VERSION,
    fetch_request,
    fetch_response,
    metadata_response,
    produce_request,
    produce_response,
)

KINDS = {
    "produce request": (load_request_schema, PRODUCE, PRODUCE_VERSION, produce_request(b"bench", 16_384)),
    "fetch request": (load_request_schema, FETCH, FETCH_VERSION, fetch_request(b"bench", 16_384)),
    "produce response": (load_response_schema, PRODUCE, PRODUCE_VERSION, produce_response()),
    "fetch response": (load_response_schema, FETCH, FETCH_VERSION, fetch_response(16_384)),
    "new produce request": (
        load_request_schema,
        PRODUCE,
        NEW_PRODUCE_VERSION,
        produce_request(b"bench", 16_384, version=NEW_PRODUCE_VERSION),
    ),
    "new produce response": (load_response_schema, PRODUCE, NEW_PRODUCE_VERSION, produce_response()),
    "new fetch request": (
        load_request_schema,
        FETCH,
        NEW_FETCH_VERSION,
        fetch_request(b"bench", 16_384, version=NEW_FETCH_VERSION),
    ),
    "new fetch response": (
        load_response_schema,
        FETCH,
        NEW_FETCH_VERSION,
        fetch_response(16_384, version=NEW_FETCH_VERSION),
    ),
    "metadata response": (load_response_schema, METADATA, 1, metadata_response(b"127.0.0.1", 9092)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_kio_reads_the_whole_frame(kind: str) -> None:
    load_schema, api_key, version, frame = KINDS[kind]
    schema = load_schema(api_key, version)

    _, header_size = entity_reader(schema.__header_schema__)(frame, 4)
    _, body_size = entity_reader(schema)(frame, 4 + header_size)

    assert 4 + header_size + body_size == len(frame)
    assert int.from_bytes(frame[:4]) == len(frame) - 4


@pytest.mark.parametrize("size_bytes", [16_384, 65_536, 262_144, 1_048_576])
def test_frame_has_the_size_of_its_row(size_bytes: int) -> None:
    assert size_bytes - 3 <= len(produce_request(b"bench", size_bytes)) <= size_bytes
    assert size_bytes - 3 <= len(fetch_response(size_bytes)) <= size_bytes
