"""Quotas that are written to a file are the same when they are read again."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_quota_proxy.config.load import load_bytes
from kafka_quota_proxy.config.model import DEFAULT, Enforcement, ProxyConfig, QuotaRule, Shaping
from kafka_quota_proxy.pipeline.errors import InputError
from kafka_quota_proxy.pipeline.quotas_file import as_file, read_quotas

names = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), min_size=1, max_size=20).filter(
    lambda name: not name.startswith("<")
)


@given(user=names | st.none() | st.just(DEFAULT), client_id=names, rate=st.integers(1_000, 2**50))
def test_written_quotas_load_in_a_proxy(user: str | None, client_id: str, rate: int) -> None:
    rule = QuotaRule(user=user, client_id=client_id, producer_byte_rate=float(rate))

    loaded = load_bytes(as_file([(rule, "why")], head=["one", ""]).encode(), file="quotas.yaml")

    (read,) = loaded.config.quotas
    assert (read.user, read.client_id, read.limits.get("producer_byte_rate")) == (user, client_id, float(rate))
    # A client may have any name. A rule for a name with a trailing blank gives a warning, because it looks like a
    # mistake.
    assert {warning.key for warning in loaded.warnings} <= {"quotas[0].user", "quotas[0].client-id"}


@given(
    of_rule=st.tuples(st.sampled_from([None, *Enforcement]), st.sampled_from([None, *Shaping])),
    of_file=st.tuples(st.sampled_from(Enforcement), st.sampled_from(Shaping)),
    burst_ms=st.integers(1, 60_000),
    max_throttle_time_ms=st.integers(1_000, 60_000) | st.none(),
)
def test_enforcement_and_shaping_are_written_with_the_limits(
    of_rule: tuple[Enforcement | None, Shaping | None],
    of_file: tuple[Enforcement, Shaping],
    burst_ms: int,
    max_throttle_time_ms: int | None,
) -> None:
    rule = QuotaRule(user="alice", producer_byte_rate=5e6, enforcement=of_rule[0], shaping=of_rule[1])
    held = ProxyConfig(
        listeners=(),
        enforcement=of_file[0],
        shaping=of_file[1],
        burst_ms=burst_ms,
        max_throttle_time_ms=max_throttle_time_ms,
    )

    read = load_bytes(as_file([(rule, "")], head=[], held=held).encode(), file="quotas.yaml").config

    assert (read.quotas[0].enforcement, read.quotas[0].shaping) == of_rule
    assert (read.enforcement, read.shaping) == of_file
    assert (read.burst_ms, read.max_throttle_time_ms) == (burst_ms, max_throttle_time_ms)


def test_no_quotas_give_a_valid_file() -> None:
    assert load_bytes(as_file([], head=[]).encode(), file="quotas.yaml").config.quotas == ()


def test_quotas_alone_are_enough_and_faults_keep_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "proposed.yaml"
    path.write_text("quotas:\n  - {user: alice, producer_byte_rate: 5MB}", encoding="utf-8")
    assert [rule.limits.get("producer_byte_rate") for rule in read_quotas(str(path)).quotas] == [5e6]

    path.write_text("quotas:\n  - {user: alice, producer_byte_rat: 5MB}\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"proposed\.yaml:2: quotas\[0\]"):
        read_quotas(str(path))
    with pytest.raises(InputError, match="cannot be read"):
        read_quotas(str(tmp_path / "none.yaml"))


@pytest.mark.parametrize("head", ["", "# proposed\n\n", "---\n", "--- "])
def test_quotas_may_be_json(tmp_path: Path, head: str) -> None:
    path = tmp_path / "quotas.json"
    path.write_text(head + '{"quotas": [\n  {"user": "alice", "producer_byte_rate": 5000}\n]}\n', encoding="utf-8")

    (rule,) = read_quotas(str(path)).quotas

    assert (rule.user, rule.limits) == ("alice", {"producer_byte_rate": 5_000.0})
    path.write_text(head + '{"quotas": [\n  {"user": "alice", "producer_byte_rate": "x"}\n]}\n', encoding="utf-8")
    with pytest.raises(InputError) as error:
        read_quotas(str(path))
    assert error.value.faults[0].startswith(f"{path}:{2 + head.count(chr(10))}: ")


def test_rules_that_change_with_time_are_refused_at_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "proposed.yaml"
    path.write_text(
        "quotas:\n"
        "  - {user: alice, producer_byte_rate: 5MB, enforcement: observe}\n"
        "  - {user: bob, producer_byte_rate: 5MB, expires: 2026-12-01T00:00:00Z}\n"
        "  - {ip: <default>, connection_creation_rate: 5, schedule: {days: mon, time_zone: UTC}}\n",
        encoding="utf-8",
    )

    with pytest.raises(InputError) as caught:
        read_quotas(str(path))

    said = "a replay needs one limit for all times; write that limit, and remove this"
    assert caught.value.faults == (f"{path}:3: expires: {said}", f"{path}:4: schedule: {said}")
