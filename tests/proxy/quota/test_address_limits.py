"""Tests the limits of IP addresses: their canonical names, and changes of single rules."""

from kafka_quota_proxy.config.addresses import canonical
from kafka_quota_proxy.config.model import DEFAULT, IpRule
from kafka_quota_proxy.proxy.quota.address_limits import AddressLimits


def test_each_spelling_of_an_address_is_canonical() -> None:
    for host, name in [
        ("10.0.0.7", "10.0.0.7"),
        ("::ffff:10.0.0.7", "10.0.0.7"),
        ("2001:DB8:0:0:0::1", "2001:db8::1"),
        ("fe80::1%eth0", "fe80::1%eth0"),
        ("not an address", "not an address"),
    ]:
        assert canonical(host) == name, (host, name)


def test_change_returns_addresses_that_gain_or_lose_a_rule() -> None:
    limits = AddressLimits([IpRule(ip="10.0.0.1", connection_creation_rate=1.0)])

    named = limits.change(
        {
            "10.0.0.1": None,
            "::ffff:10.0.0.2": IpRule(ip="::ffff:10.0.0.2", connection_creation_rate=2.0),
            DEFAULT: IpRule(ip=DEFAULT, connection_creation_rate=9.0),
            "10.0.0.3": None,
        }
    )

    assert named == {"10.0.0.1": False, "10.0.0.2": True}
    assert limits.change({"10.0.0.2": IpRule(ip="10.0.0.2", connection_creation_rate=3.0)}) == {}
    assert limits.rules() == [("10.0.0.2", 3.0), ("<default>", 9.0)]
    assert [limits.of(host) for host in ("10.0.0.1", "10.0.0.2")] == [9.0, 3.0]
