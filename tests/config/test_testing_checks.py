"""Tests what ``testing: true`` needs, and the warning of an admin port that others can reach."""

import pytest

from kafka_quota_proxy.config.errors import InvalidConfigError
from kafka_quota_proxy.config.load import load_bytes

LISTENER = "listeners: [{name: a, bind: 127.0.0.1:9092, upstream: 127.0.0.1:19092}]\n"


def test_testing_is_off_unless_the_file_says_so() -> None:
    assert not load_bytes(LISTENER.encode(), file="p.yaml").config.testing
    assert not load_bytes(f"{LISTENER}testing: false\n".encode(), file="p.yaml").config.testing


def test_testing_needs_the_admin_port() -> None:
    with pytest.raises(InvalidConfigError, match=r"p\.yaml:2: testing: .*needs the admin port"):
        load_bytes(f"{LISTENER}testing: true\n".encode(), file="p.yaml")


@pytest.mark.parametrize(
    ("host", "warns"),
    [("127.0.0.1", False), ("localhost", False), ("'[::1]", False), ("'[::]", True), ("10.0.0.1", True)],
)
def test_public_admin_port_is_warned_of(host: str, warns: bool) -> None:
    bind = f"{host}:9644'" if host.startswith("'") else f"{host}:9644"
    loaded = load_bytes(f"{LISTENER}testing: true\nadmin: {{bind: {bind}}}\n".encode(), file="p.yaml")

    assert loaded.config.testing
    assert [one.key for one in loaded.warnings if "testing" in one.message] == ["admin.bind"] * warns
