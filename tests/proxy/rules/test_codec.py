"""Tests changes and rules as JSON. Other JSON is refused with the place and the reason."""

import json
from contextlib import suppress
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_quota_proxy.config.strict_json import StrictJsonError, parse_json
from kafka_quota_proxy.proxy.rules.codec import (
    JsonFormError,
    read_changes,
    read_results,
    read_rules,
)

P = "producer_byte_rate"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"[]", "(body): must be an object"),
        (b'{"changes":[],"when":1}', "(body): 'when' is unknown; known: changes, dry_run"),
        (b'{"changes":{}}', "changes: must be a list"),
        (b'{"changes":[],"dry_run":1}', "dry_run: must be true or false"),
        (b'{"changes":[7]}', "changes[0]: must be an object"),
        (b'{"changes":[{"entity":{"user":"a"}}]}', "changes[0].limits: is missing"),
        (b'{"changes":[{"entity":{},"limits":{}}]}', "changes[0].entity: names no user, client-id or ip"),
        (
            b'{"changes":[{"entity":{"ip":"host.example"},"limits":{}}]}',
            "changes[0].entity.ip: 'host.example' is not an IP address; write one such as 10.0.0.7",
        ),
        (
            b'{"changes":[{"entity":{"ip":"::1"},"limits":{}},{"entity":{"ip":"::0001"},"limits":{}}]}',
            "changes[1].entity: is given twice",
        ),
        (b'{"changes":[{"entity":{"group":"a"},"limits":{}}]}', "changes[0].entity: 'group' is not an entity type"),
        (
            b'{"changes":[{"entity":{"user":"' + b"a" * 32_768 + b'"},"limits":{}}]}',
            "changes[0].entity.user: names have at most 32767 bytes",
        ),
        (b'{"changes":[{"entity":{"user":7},"limits":{}}]}', "changes[0].entity.user: must be text, or null"),
        (b'{"changes":[{"entity":{"user":"a"},"limits":{"x":"1"}}]}', "changes[0].limits: 'x' must be a number"),
        (b'{"changes":[{"entity":{"user":"a"},"limits":{"x":true}}]}', "changes[0].limits: 'x' must be a number"),
        (
            b'{"changes":[{"entity":{"user":"a"},"limits":{}},{"entity":{"user":"a"},"limits":{}}]}',
            "changes[1].entity: is given twice",
        ),
        (b'{"changes":[{"entity":{"user":"a"},"limits":{},"terms":{"ramp":1}}]}', "changes[0].terms.ramp: must be"),
        (b'{"changes":[{"entity":{"user":"a"},"limits":{},"terms":1}]}', "changes[0].terms: must be a mapping"),
    ],
)
def test_malformed_change_is_refused_with_its_place(body: bytes, said: str) -> None:
    with pytest.raises(JsonFormError) as caught:
        read_changes(parse_json(body))

    assert str(caught.value).startswith(said)


def test_number_beyond_floats_is_read_as_infinity() -> None:
    body = b'{"changes":[{"entity":{"user":"a"},"limits":{"x":1' + b"0" * 400 + b"}}]}"

    ((alteration,), _, _) = read_changes(parse_json(body))

    assert alteration.ops[0].value == float("inf")


values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["changes", "entity", "limits", "terms", "dry_run", "user", "ip", P, "rules", "results", "old"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(st.binary(max_size=60) | values.map(lambda value: json.dumps(value).encode()))
def test_any_bytes_are_read_or_refused_with_a_message(data: bytes) -> None:
    for reads in (partial(read_rules, is_file=True), partial(read_rules, is_file=False), read_results):
        with suppress(JsonFormError):
            reads(data)
    with suppress(JsonFormError, StrictJsonError):
        read_changes(parse_json(data))
