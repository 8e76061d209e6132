"""Tests that the operator's own identity function is used, or is a fault at its line."""

from pathlib import Path

import pytest

from kafka_quota_proxy.config.errors import ConfigError
from kafka_quota_proxy.config.fair_call_queue import OwnIdentityProvider
from kafka_quota_proxy.config.load import load, load_bytes
from kafka_quota_proxy.config.principals import Fold

OWN = (
    "listeners: [{name: clients, bind: 127.0.0.1:9092, upstream: 127.0.0.1:19092}]\n"
    "fair_call_queue:\n"
    "  identity-provider.impl: "
)


@pytest.mark.parametrize(
    ("provider", "said"),
    [
        (
            "no_such_module:f",
            "no_such_module cannot be imported: ModuleNotFoundError: No module named 'no_such_module'",
        ),
        ("broken_identities:f", "broken_identities cannot be imported: ZeroDivisionError: division by zero"),
        ("own_identities:f", "own_identities has no function f"),
    ],
)
def test_a_missing_identity_function_is_a_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, provider: str, said: str
) -> None:
    (tmp_path / "own_identities.py").write_text("f = 'no function'\n")
    (tmp_path / "broken_identities.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    path = tmp_path / "c.yaml"
    path.write_text(OWN + provider)

    with pytest.raises(ConfigError) as failed:
        load(path)

    (fault,) = failed.value.faults
    assert str(fault).startswith(f"{path}:3: fair_call_queue.identity-provider.impl: {said}")
    assert load_bytes(path.read_bytes(), file="c.yaml").warnings == ()


def test_an_identity_function_is_used_with_folded_principals(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(f"{OWN}json:dumps\nprincipals: {{fold: [{{match: 'a-.*', to: a}}]}}\n")

    queue = load(path).config.listeners[0].fair_call_queue

    assert queue is not None
    assert queue.identity_provider == OwnIdentityProvider("json", "dumps")
    assert queue.fold == (Fold(match="a-.*", to="a"),)
