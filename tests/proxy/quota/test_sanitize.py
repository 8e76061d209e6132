"""Tests user names in metrics, as Kafka writes them (V28, V60)."""

import re
from urllib.parse import unquote

from hypothesis import given
from hypothesis import strategies as st

from kafka_quota_proxy.proxy.quota.sanitize import sanitize


def test_names_are_escaped_as_in_kafka() -> None:
    for name, sanitized in [
        (
            "CN=Some characters !@#$%&*()_-+=';:,/~",
            "CN%3DSome%20characters%20%21%40%23%24%25%26%2A%28%29_-%2B%3D%27%3B%3A%2C%2F%7E",
        ),
        ("<default>", "%3Cdefault%3E"),
        ("Üser", "%C3%9Cser"),
        ("a.b-c_d", "a.b-c_d"),
        ("", ""),
    ]:
        assert sanitize(name) == sanitized, (name, sanitized)


@given(st.text())
def test_any_escaped_name_is_plain_and_decodes_back(name: str) -> None:
    assert re.fullmatch(r"[A-Za-z0-9._%-]*", sanitize(name))
    assert unquote(sanitize(name), errors="surrogatepass") == name
