"""Tests which limits of IP addresses are in force, whatever names a store has for the addresses."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_quota_proxy.config.model import DEFAULT, Default, IpRule
from kafka_quota_proxy.proxy.client_quotas.rules import ip_rules as addresses
from kafka_quota_proxy.proxy.client_quotas.rules.ip_rules import EffectiveIpRules, literal
from kafka_quota_proxy.proxy.quota.rule_changes import Ip

A, B = "192.0.2.1", "192.0.2.2"
NAMES: list[Ip] = [DEFAULT, A, "::ffff:192.0.2.1", B, "here.example", "there.example"]


def rates(in_force: EffectiveIpRules) -> Mapping[Ip, float]:
    return {ip: rule.connection_creation_rate for ip, rule in in_force.rules.items()}


def test_limit_of_a_host_applies_to_its_addresses() -> None:
    in_force = EffectiveIpRules(name="d")

    in_force.change("0:0:0:0:0:0:0:1", 2.0, {})
    in_force.change("host.example", 3.0, {"host.example": (A, B)})
    assert in_force.change("gone.example", 4.0, {}) == {}

    assert rates(in_force) == {"::1": 2.0, A: 3.0, B: 3.0}
    assert in_force.unknown_hosts == {"gone.example"}
    assert in_force.update_addresses({"gone.example": ("192.0.2.9",), "stranger.example": (A,)}) == {
        "192.0.2.9": IpRule(ip="192.0.2.9", connection_creation_rate=4.0, source="d")
    }
    assert in_force.unknown_hosts == set()


def test_moved_host_frees_its_old_address_and_a_lost_one_keeps_its_last() -> None:
    in_force = EffectiveIpRules(name="d")
    in_force.change("host.example", 3.0, {"host.example": (A,)})

    assert in_force.update_addresses({"host.example": (B,)})[A] is None
    in_force.change("host.example", 5.0, {})

    assert rates(in_force) == {B: 5.0}
    assert in_force.change("host.example", None, {}) == {B: None}
    assert (in_force._hosts, in_force._names, in_force._rates) == ({}, {}, {})


def test_lowest_limit_of_several_names_of_one_address_counts() -> None:
    in_force = EffectiveIpRules(name="d")
    in_force.change("host.example", 3.0, {"host.example": (A,)})
    in_force.change(A, 5.0, {})
    in_force.change("::ffff:192.0.2.1", 4.0, {})

    assert rates(in_force) == {A: 3.0}
    in_force.change("host.example", None, {})
    assert rates(in_force) == {A: 4.0}


def test_a_change_looks_at_no_other_address() -> None:
    in_force = EffectiveIpRules(name="d")
    for number in range(1_000):
        in_force.change(f"10.0.{number // 250}.{number % 250}", 1.0, {})
    looked: list[str] = []

    def look(name: str) -> str | None:
        looked.append(name)
        return literal(name)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(addresses, "literal", look)
        assert list(in_force.change("10.0.1.7", 5.0, {})) == ["10.0.1.7"]

    assert set(looked) == {"10.0.1.7"}


@st.composite
def changed(draw: st.DrawFn) -> tuple[Mapping[Ip, float], Mapping[str, tuple[str, ...]], list[Ip], EffectiveIpRules]:
    """Apply random changes. Return the limits by name, the hosts' addresses, the file's addresses, and the rules."""
    in_force = EffectiveIpRules(name="d")
    limits: dict[Ip, float] = {}
    known: dict[str, tuple[str, ...]] = {}
    filed: list[Ip] = []
    followed: dict[Ip, IpRule | None] = {}
    for _ in range(draw(st.integers(0, 12))):
        name, there = draw(st.sampled_from(NAMES)), draw(st.lists(st.sampled_from([A, B]), max_size=2, unique=True))
        match draw(st.sampled_from(["set", "remove", "know", "file"])):
            case "set":
                limits[name] = draw(st.sampled_from([1.0, 2.0]))
                followed |= in_force.change(name, limits[name], {})
            case "remove":
                limits.pop(name, None)
                known.pop(str(name), None)
                followed |= in_force.change(name, None, {})
            case "know":
                followed |= in_force.update_addresses({str(name): tuple(there)})
                if name in limits:
                    known[str(name)] = tuple(there)
            case _:
                filed = draw(st.lists(st.sampled_from([DEFAULT, A]), max_size=2, unique=True))
                in_force.follow_file(filed)
                followed = dict(in_force.rules)
    assert {ip: rule for ip, rule in followed.items() if rule is not None} == in_force.rules
    return limits, known, filed, in_force


@given(changed())
def test_rules_equal_those_of_a_full_recomputation(
    case: tuple[Mapping[Ip, float], Mapping[str, tuple[str, ...]], list[Ip], EffectiveIpRules],
) -> None:
    limits, known, filed, in_force = case
    wanted: dict[Ip, float] = {}
    for name, rate in limits.items():
        spelled = name if isinstance(name, Default) else literal(name)
        for ip in known.get(str(name), ()) if spelled is None else (spelled,):
            if ip not in filed:
                wanted[ip] = min(rate, wanted.get(ip, rate))

    assert rates(in_force) == wanted
