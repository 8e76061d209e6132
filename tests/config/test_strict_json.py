"""Tests what JSON is refused, and that the message says where the fault is."""

import json

import pytest

from kafka_quota_proxy.config.strict_json import StrictJsonError, parse_json


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"\xff", "byte 0 is not UTF-8"),
        ('{"a":1}'.encode("utf-16"), "byte 0 is not UTF-8"),
        (b"", "line 1 is not JSON: "),
        (b'{"x":NaN}', "NaN is not a number"),
        (b'{"x":-Infinity}', "-Infinity is not a number"),
        (b'[{"x":1,"x":2}]', "'x' is given twice in one object"),
        (b'{"x":' + b"9" * 5_000 + b"}", "has a number with too many digits"),
        (b"[" * 17 + b"]" * 17, "is nested too deeply; at most 16 levels are allowed"),
        (b"[" * 500_000, "is nested too deeply; at most 16 levels are allowed"),
        (b'{"a":' * 900 + b"1" + b"}" * 900, "is nested too deeply; at most 16 levels are allowed"),
        (b'{"topic":"\\uD800"}', "has text with half of a pair of surrogates"),
        (b'{"a":[{"b":1},{"c":["\\udfff\\ud800"]}]}', "has text with half of a pair of surrogates"),
        (b'{"a":{"\\udc00":1}}', "has text with half of a pair of surrogates"),
        (b'"\\udc00"', "has text with half of a pair of surrogates"),
    ],
)
def test_json_that_is_not_strict_is_refused(data: bytes, said: str) -> None:
    with pytest.raises(StrictJsonError) as caught:
        parse_json(data)

    assert str(caught.value).startswith(said)
    assert len(str(caught.value).encode()) < 200


@pytest.mark.parametrize("value", ["\U0001f600", {"ü": ["\\ud800"]}, json.loads("[" * 16 + "]" * 16), [[]] * 100])
def test_json_is_read_as_it_was_written(value: object) -> None:
    for ensure_ascii in (True, False):
        assert parse_json(json.dumps(value, ensure_ascii=ensure_ascii).encode()) == value


def test_object_with_many_keys_is_read_in_linear_time() -> None:
    keys = ",".join(f'"{number}":1' for number in range(100_000))

    with pytest.raises(StrictJsonError, match="'99999' is given twice"):
        parse_json(f'{{{keys},"99999":2}}'.encode())
