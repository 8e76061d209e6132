"""Tests which topics are found in responses, against two codecs."""

from random import Random

import pytest

from kafka_quota_proxy.protocol.api import ApiKey
from kafka_quota_proxy.protocol.errors import ProtocolError
from kafka_quota_proxy.protocol.response_topics import APIS_WITH_TOPICS, names_by_id, topics_of
from tests.protocol.support.codecs import Codec, codecs, uuid_of
from tests.support.cases import SEEDS, each_case

PRODUCE, FETCH, METADATA = int(ApiKey.PRODUCE), int(ApiKey.FETCH), int(ApiKey.METADATA)


@pytest.mark.parametrize("codec", [*codecs("response", PRODUCE), *codecs("response", FETCH)], ids=repr)
@each_case("seed", SEEDS)
def test_topics_are_those_that_a_codec_lists(codec: Codec, seed: int) -> None:
    message = codec.generated(Random(seed))  # noqa: S311
    frame = codec.frame(message)

    found = topics_of(frame, codec.api_key, codec.version)

    has_ids = codec.has("responses.topic_id")
    listed = codec.get(message, "responses") or ()
    if codec.api_key == FETCH:
        listed = [topic for topic in listed if codec.get(topic, "partitions")]
    if has_ids:
        assert found == {uuid_of(codec.get(topic, "topic_id")).bytes for topic in listed}
    else:
        name = "name" if codec.has("responses.name") else "topic"
        assert found == {codec.get(topic, name).encode() for topic in listed}


@pytest.mark.parametrize("codec", codecs("response", METADATA), ids=repr)
@each_case("seed", SEEDS)
def test_names_are_found_by_the_ids_of_a_codec(codec: Codec, seed: int) -> None:
    message = codec.generated(Random(seed))  # noqa: S311

    names = names_by_id(codec.frame(message), codec.version)

    if not codec.has("topics.topic_id"):
        assert names == {}
        return
    listed = [
        (codec.get(topic, "name"), uuid_of(codec.get(topic, "topic_id"))) for topic in codec.get(message, "topics")
    ]
    assert names == {topic_id.bytes: name.encode() for name, topic_id in listed if name is not None}


@pytest.mark.parametrize("api_key", sorted(APIS_WITH_TOPICS))
def test_cut_response_is_refused(api_key: int) -> None:
    with pytest.raises(ProtocolError):
        topics_of(b"\0\0\0\x09" + b"\0" * 6, api_key, 11)
