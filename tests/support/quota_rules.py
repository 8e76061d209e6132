"""Hypothesis strategies for quota rules.

They draw any names, any limits that a store accepts, and any terms that a configuration file can express.
"""

from typing import Final

from hypothesis import strategies as st

from kafka_quota_proxy.config.addresses import parse_ip
from kafka_quota_proxy.config.model import DEFAULT, Enforcement, Shaping
from kafka_quota_proxy.config.schedule import Ramp, Schedule
from kafka_quota_proxy.config.terms import NO_TERMS, Terms
from kafka_quota_proxy.proxy.rules.model import Entity, StoredRule

_P: Final = "producer_byte_rate"
_ODD_NAMES: Final = (
    *("<default>", "007", "no", "null", "~", "a: b", "# no", "2024-01-01", "'\"\\"),
    *("\x00", "\x85", "\u2028", "\ufeff", "\U0001f600"),
)

names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12) | st.sampled_from(_ODD_NAMES)
_parts = st.none() | st.just(DEFAULT) | names
clients = st.tuples(_parts, _parts).filter(lambda two: two != (None, None)).map(lambda two: Entity(*two))
addresses = (st.just(DEFAULT) | st.ip_addresses().map(str).map(parse_ip)).map(lambda ip: Entity(ip=ip))
_usual_longs = st.integers(1, 2**53).map(float) | st.sampled_from([10.0 * 2**20, 1e6])
_longs = _usual_longs | st.just(float(2**63 - 1))
_doubles = st.floats(min_value=1e-9, max_value=2**31 - 1)
_instants = st.integers(31_622_400_000, 253_000_000_000_000)
_schedules = st.builds(
    Schedule,
    time_zone=st.sampled_from(["UTC", "Europe/Berlin"]),
    days=st.frozensets(st.integers(0, 6), min_size=1),
    begin_minute=st.integers(0, 700),
    end_minute=st.integers(701, 1440),
    otherwise=st.none() | st.tuples(st.tuples(st.just(_P), _usual_longs)),
)
_ramps = st.builds(
    Ramp,
    start=st.tuples(st.tuples(st.just(_P), _usual_longs)),
    begins_ms=_instants,
    over_ms=st.integers(10, 1_000_000),
    steps=st.integers(1, 10),
)
_terms = st.builds(
    Terms,
    enforcement=st.none() | st.sampled_from(Enforcement),
    shaping=st.none() | st.sampled_from(Shaping),
    expires_ms=st.none() | _instants,
    schedule=st.none() | _schedules,
    ramp=st.none() | _ramps,
)
client_rules = st.builds(
    StoredRule,
    limits=st.fixed_dictionaries(
        {_P: _longs},
        optional={"consumer_byte_rate": _longs, "request_percentage": _doubles, "controller_mutation_rate": _doubles},
    ),
    terms=st.just(NO_TERMS) | _terms,
)
ip_rules = st.builds(
    StoredRule,
    limits=st.fixed_dictionaries({"connection_creation_rate": st.integers(1, 2**31 - 1).map(float)}),
    terms=st.just(NO_TERMS),
)
some_rules = st.builds(
    lambda one, other: one | other,
    st.dictionaries(clients, client_rules, max_size=4),
    st.dictionaries(addresses, ip_rules, max_size=2),
)
