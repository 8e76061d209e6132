"""Tests how the body of a request is read, and what is said of one that cannot be used."""

import io

import pytest

from kafka_quota_proxy.proxy.admin.requests import RefusedError, read_json, refusal
from kafka_quota_proxy.proxy.rules.codec import MAX_BODY_BYTES


def environ(**changed: str) -> dict[str, object]:
    given = {"CONTENT_TYPE": "application/json; charset=utf-8", "CONTENT_LENGTH": "2"}
    return {**given, **changed, "wsgi.input": io.BytesIO(b"[]")}


def test_body_is_parsed_and_none_where_it_may_be_missing() -> None:
    assert read_json(environ()) == []
    for size in ("", "0"):
        assert read_json(environ(CONTENT_LENGTH=size), may_be_empty=True) is None


@pytest.mark.parametrize(
    ("changed", "status"),
    [
        ({"CONTENT_TYPE": "text/plain"}, "415"),
        ({"CONTENT_LENGTH": ""}, "411"),
        ({"CONTENT_LENGTH": "x"}, "411"),
        ({"CONTENT_LENGTH": str(MAX_BODY_BYTES + 1)}, "413"),
        ({"CONTENT_LENGTH": "3"}, "400"),
    ],
)
def test_unusable_body_is_refused(changed: dict[str, str], status: str) -> None:
    sent = environ(**changed)

    with pytest.raises(RefusedError) as caught:
        read_json(sent)
    reply = refusal(caught.value)
    assert reply.status.startswith(status)
    assert b"".join(reply.body) == f"{caught.value}\n".encode()
