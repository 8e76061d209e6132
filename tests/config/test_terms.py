"""Tests that the expiry, schedule and ramp of a rule are read and written, and that each fault is at its key."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_quota_proxy.config.errors import ConfigError, TermsError
from kafka_quota_proxy.config.load import load, load_bytes
from kafka_quota_proxy.config.model import DEFAULT, Enforcement, IpRule, QuotaRule, Shaping
from kafka_quota_proxy.config.quota_kinds import CLIENT_LIMIT_KEYS, KIND_OF_KEY
from kafka_quota_proxy.config.schedule import DAY_MINUTES, Ramp, Schedule
from kafka_quota_proxy.config.term_values import MAX_RAMP_MS, parse_instant_ms, written_duration, written_instant
from kafka_quota_proxy.config.terms import (
    NO_TERMS,
    TERMS,
    Terms,
    TermsChange,
    changed_terms,
    check_terms,
    read_terms,
    read_terms_change,
    replacement,
    terms_of,
    written_terms,
    written_terms_change,
)
from tests.config.test_load import LISTENERS
from tests.support.cases import each_case

NOON_MS = 1_796_126_400_000  # 2026-12-01T12:00:00Z

limits = st.dictionaries(st.sampled_from([*KIND_OF_KEY]), st.integers(1, 2**31 - 1), min_size=1).map(
    lambda found: tuple(
        (key, found[key] if key == "connections" else float(found[key])) for key in KIND_OF_KEY if key in found
    )
)
instants_ms = st.integers(parse_instant_ms("1971-01-01T00:00Z"), parse_instant_ms("9998-12-31T23:59:59.999Z"))
schedules = st.builds(
    Schedule,
    time_zone=st.sampled_from(["UTC", "Europe/Berlin", "America/Argentina/Ushuaia"]),
    days=st.frozensets(st.integers(0, 6), min_size=1),
    begin_minute=st.integers(0, DAY_MINUTES - 1),
    end_minute=st.integers(0, DAY_MINUTES),
    otherwise=st.none() | limits,
).filter(lambda schedule: schedule.begin_minute != schedule.end_minute)
ramps = st.builds(
    Ramp, start=limits, begins_ms=instants_ms, over_ms=st.integers(1_000, MAX_RAMP_MS), steps=st.integers(1, 1_000)
)
all_terms = st.builds(
    Terms,
    enforcement=st.none() | st.sampled_from(Enforcement),
    shaping=st.none() | st.sampled_from(Shaping),
    expires_ms=st.none() | instants_ms,
    schedule=st.none() | schedules,
    ramp=st.none() | ramps,
)


@given(all_terms)
def test_written_terms_are_read_as_the_same(terms: Terms) -> None:
    written = written_terms(terms)

    assert read_terms(json.loads(json.dumps(written))) == terms
    assert (written == {}) is (terms == NO_TERMS)
    assert written.keys() <= set(TERMS)


# Texts at the edges of what is valid.
texts_of_rates = st.sampled_from(
    [2**63 - 1, float(2**63 - 1), 2**63, "9223372036854775807", "8EiB", "8191.99PiB", "8388607TiB", "8388608TiB", "0.5"]
) | st.builds(
    "{}{}".format,
    st.integers(0, 10**20) | st.decimals(0, 10**20, allow_nan=False, places=5) | st.floats(0, 1e20),
    st.sampled_from(["", "B", "kB", "GiB", "TiB", "TB", "/s"]),
) | st.floats() | st.integers(0, 2**64)  # fmt: skip
texts_of_instants = st.builds(
    "{}-{:02}-{:02}T{:02}:{:02}{}{}".format,
    st.sampled_from(["1970", "1971", "2026", "9998", "9999"]), st.sampled_from([1, 12]), st.sampled_from([1, 31]),
    st.sampled_from([0, 23, 24]), st.integers(0, 59), st.sampled_from(["", ":59.999"]),
    st.sampled_from(["Z", "+00:00", "-05:00", "+05:00", "+23:59", "-23:59"]),
)  # fmt: skip
texts_of_limits = st.dictionaries(st.sampled_from([*KIND_OF_KEY]), texts_of_rates, min_size=1, max_size=2)
texts_of_terms = st.fixed_dictionaries(
    {},
    optional={
        "expires": texts_of_instants,
        "schedule": st.fixed_dictionaries(
            {"days": st.just(["mon"]), "time_zone": st.just("UTC")}, optional={"otherwise": texts_of_limits}
        ),
        "ramp": st.fixed_dictionaries(
            {"from": texts_of_limits, "begins": texts_of_instants, "over": st.sampled_from(["1h", "0.5s", "366h"])}
        ),
    },
)


@given(texts_of_terms)
def test_terms_that_are_read_are_written_and_read_again(given: dict[str, object]) -> None:
    """Otherwise a proxy could not start again with the terms that it has stored."""
    try:
        terms = read_terms(given)
    except TermsError:
        return
    assert read_terms(json.loads(json.dumps(written_terms(terms)))) == terms


@each_case(
    "given, is_taken",
    [
        ({"expires": "9998-12-31T23:00:00-05:00"}, False),
        ({"expires": "9999-01-01T00:00:00+05:00"}, True),
        ({"expires": "1971-01-01T00:00:00+05:00"}, False),
        ({"expires": "1970-12-31T23:00:00-05:00"}, True),
        ({"schedule": {"days": ["mon"], "time_zone": "UTC", "otherwise": {"producer_byte_rate": 2**63 - 1}}}, True),
    ],
)
def test_the_first_and_last_instants_are_read_and_written(given: dict[str, object], is_taken: bool) -> None:
    if is_taken:
        terms = read_terms(given)
        assert read_terms(written_terms(terms)) == terms
    else:
        with pytest.raises(TermsError, match="must be in a year from 1971 to 9998, in UTC"):
            read_terms(given)


KEYS = (*TERMS, "days", "hours", "time_zone", "otherwise", "from", "begins", "over", "steps", "producer_byte_rate", "x")
anything = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=5),
    max_leaves=12,
)


@given(all_terms, all_terms, st.frozensets(st.sampled_from(TERMS)))
def test_a_change_sets_and_removes_terms_and_keeps_the_rest(old: Terms, new: Terms, removed: frozenset[str]) -> None:
    change = TermsChange(given=new, removed=removed - written_terms(new).keys())
    expected = {key: term for key, term in written_terms(old).items() if key not in removed} | written_terms(new)

    assert written_terms(changed_terms(old, change)) == expected
    assert read_terms_change(json.loads(json.dumps(written_terms_change(change)))) == change
    assert changed_terms(old, replacement(new)) == new
    assert changed_terms(old, read_terms_change(None)) == NO_TERMS


@given(anything)
def test_anything_is_terms_or_a_fault(given: object) -> None:
    try:
        terms = read_terms(given)
    except TermsError:
        return
    assert read_terms(written_terms(terms)) == terms


def rules(*lines: str) -> tuple[QuotaRule | IpRule, ...]:
    config = load_bytes((LISTENERS + "quotas:\n" + "\n".join(lines)).encode(), file="f.yaml").config
    return (*config.quotas, *config.ip_quotas)


def test_a_rule_of_the_file_has_terms() -> None:
    expiring, scheduled, ramped, of_address = rules(
        "  - {client-id: a, producer_byte_rate: 10MiB, expires: 2026-12-01 13:00:00+01:00, shaping: paced}",
        "  - client-id: b",
        "    producer_byte_rate: 10MiB",
        "    schedule: {days: [mon-fri, sun], hours: 22:00-06:00, time_zone: Europe/Berlin,",
        "      otherwise: {producer_byte_rate: 50MiB, connections: 7}}",
        "  - {client-id: c, producer_byte_rate: 1MB, ramp:",
        "      {from: {producer_byte_rate: 5MB}, begins: 2026-12-01T12:00:00Z, over: 2h}}",
        "  - {ip: <default>, connection_creation_rate: 5, expires: '2026-12-01T12:00Z',",
        "      schedule: {days: sat-sun, time_zone: UTC}}",
    )

    assert terms_of(expiring) == Terms(expires_ms=NOON_MS, shaping=Shaping.PACED)
    assert scheduled.schedule == Schedule(
        time_zone="Europe/Berlin",
        days=frozenset({0, 1, 2, 3, 4, 6}),
        begin_minute=22 * 60,
        end_minute=6 * 60,
        otherwise=(("producer_byte_rate", 50.0 * 2**20), ("connections", 7)),
    )
    assert ramped.ramp == Ramp(start=(("producer_byte_rate", 5e6),), begins_ms=NOON_MS, over_ms=7_200_000, steps=10)
    assert of_address == IpRule(
        ip=DEFAULT,
        connection_creation_rate=5.0,
        expires_ms=NOON_MS,
        schedule=Schedule(time_zone="UTC", days=frozenset({5, 6})),
        source="f.yaml:10",
    )


@each_case(
    "terms, key, message",
    [
        (
            "expires: 2026-12-01",
            "expires",
            "'2026-12-01' is not an instant with its zone, such as 2030-01-31T00:00:00Z",
        ),
        ("expires: 2026-13-01T00:00:00Z", "expires", "is not an instant"),
        ("expires: 2026-12-01T00:00:00", "expires", "is not an instant"),
        ("expires: 0001-01-01T00:00:00Z", "expires", "must be in a year from 1971 to 9998"),
        ("expires: 1764547200", "expires", "must be an instant with its zone"),
        ("expires:", "expires", "has no value; write an instant"),
        ("schedule: 8-18", "schedule", "must be a mapping of days, hours, time_zone, otherwise, not '8-18'"),
        ("schedule: {time_zone: UTC}", "schedule", "has no time; give days, hours or both"),
        ("schedule: {days: [mon]}", "schedule.time_zone", "is missing; write the zone whose clocks count"),
        (
            "schedule: {days: [mon], time_zone: CEST5}",
            "schedule.time_zone",
            "'CEST5' is not a known time zone",
        ),
        (
            "schedule: {days: [mo], time_zone: UTC}",
            "schedule.days",
            "['mo'] is not a list of days; write days such as [mon-fri]",
        ),
        ("schedule: {days: [mon-], time_zone: UTC}", "schedule.days", "['mon-'] is not a list of days"),
        ("schedule: {days: [], time_zone: UTC}", "schedule.days", "must be days such as [mon-fri]"),
        ("schedule: {days: [5], time_zone: UTC}", "schedule.days", "must be days such as [mon-fri]"),
        (
            "schedule: {hours: 8-18, time_zone: UTC}",
            "schedule.hours",
            "'8-18' is not a range of hours; write \"08:00-18:00\"",
        ),
        ("schedule: {hours: 24:00-08:00, time_zone: UTC}", "schedule.hours", "is not a range of hours"),
        ("schedule: {hours: 08:00-08:00, time_zone: UTC}", "schedule.hours", "hours end when they begin; remove hours"),
        ("schedule: {day: mon, time_zone: UTC}", "schedule.day", "unknown key; known here: days, hours, time_zone"),
        (
            "schedule: {days: mon, time_zone: UTC, otherwise: {}}",
            "schedule.otherwise",
            "limits nothing; give a limit such as producer_byte_rate, or remove this",
        ),
        (
            "schedule: {days: mon, time_zone: UTC, otherwise: {producer_byte_rate: 0}}",
            "schedule.otherwise.producer_byte_rate",
            "a byte rate must be above 0",
        ),
        (
            "schedule: {days: mon, time_zone: UTC, otherwise: {connection_creation_rate: 5}}",
            "schedule.otherwise.connection_creation_rate",
            "is not a limit of such an entity; its limits are producer_byte_rate,",
        ),
        (
            "ramp: {begins: 2026-12-01T12:00:00Z, over: 2h}",
            "ramp.from",
            "is missing; write the limits that it begins with",
        ),
        ("ramp: {from: {producer_byte_rate: 5}, over: 2h}", "ramp.begins", "is missing; write an instant"),
        ("ramp: {from: {producer_byte_rate: 5}, begins: 2026-12-01T12:00Z}", "ramp.over", "is missing; write how long"),
        (
            "ramp: {from: {consumer_byte_rate: 5}, begins: 2026-12-01T12:00Z, over: 2h}",
            "ramp.from.consumer_byte_rate",
            "is not limited by the rule, so the ramp has no target",
        ),
        (
            "ramp: {from: {producer_byte_rate: 5}, begins: 2026-12-01T12:00Z, over: 2}",
            "ramp.over",
            "must be a duration such as 2h",
        ),
        (
            "ramp: {from: {producer_byte_rate: 5}, begins: 2026-12-01T12:00Z, over: 9000h}",
            "ramp.over",
            "must be at most 8784h (a year)",
        ),
        (
            "ramp: {from: {producer_byte_rate: 5}, begins: 2026-12-01T12:00Z, over: 0s}",
            "ramp.over",
            "must be at least a millisecond for each step",
        ),
        (
            "ramp: {from: {producer_byte_rate: 5}, begins: 2026-12-01T12:00Z, over: 2h, steps: 0}",
            "ramp.steps",
            "must be a whole number from 1 to 1000",
        ),
    ],
)
def test_a_faulty_term_has_the_line_of_its_key(terms: str, key: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        rules("  - client-id: a", "    producer_byte_rate: 10MiB", f"    {terms}")

    (fault,) = caught.value.faults
    assert fault.key == f"quotas[0].{key}"
    assert fault.line == 5
    assert message in fault.message


@each_case("key", ["enforcement: observe", "shaping: paced"])
def test_a_rule_of_an_address_has_times_but_no_enforcement(key: str) -> None:
    with pytest.raises(
        ConfigError, match="cannot be given with ip, whose rule has connection_creation_rate and its times alone"
    ):
        rules(f"  - {{ip: 10.0.0.7, connection_creation_rate: 5, {key}}}")


def test_terms_fit_the_entity_and_its_limits() -> None:
    ramp = Ramp(start=(("producer_byte_rate", 5.0),), begins_ms=0, over_ms=1_000, steps=2)

    check_terms(Terms(ramp=ramp), limits=["producer_byte_rate"], allowed=CLIENT_LIMIT_KEYS)
    with pytest.raises(TermsError, match=r"^ramp\.from\.producer_byte_rate: is not limited"):
        check_terms(Terms(ramp=ramp), limits=["consumer_byte_rate"], allowed=CLIENT_LIMIT_KEYS)
    with pytest.raises(TermsError, match=r"^enforcement: is not for addresses"):
        check_terms(Terms(enforcement=Enforcement.DELAY), limits=[], allowed=["connection_creation_rate"])


@given(instants_ms, st.integers(1, MAX_RAMP_MS))
def test_instants_and_durations_are_written_in_full(unix_ms: int, duration_ms: int) -> None:
    written = written_instant(unix_ms)

    assert parse_instant_ms(written) == unix_ms
    assert datetime.fromisoformat(written) == datetime.fromtimestamp(unix_ms // 1_000, tz=UTC).replace(
        microsecond=unix_ms % 1_000 * 1_000
    )
    terms = {"ramp": {"from": {"connections": 1}, "begins": written, "over": written_duration(duration_ms), "steps": 1}}
    ramp = read_terms(terms).ramp
    assert ramp is not None
    assert (ramp.begins_ms, ramp.over_ms) == (unix_ms, duration_ms)


def test_an_expired_rule_is_a_warning(tmp_path: Path) -> None:
    file = tmp_path / "f.yaml"
    line = "  - {client-id: %s, producer_byte_rate: 10MiB, expires: %s}\n"
    file.write_text(
        LISTENERS + "quotas:\n" + line % ("a", "2026-01-01T00:00:00Z") + line % ("b", "9000-01-01T00:00:00Z")
    )

    (warning,) = load(file).warnings

    assert str(warning) == (
        f"{file}:3: quotas[0].expires: warning: expired at 2026-01-01T00:00:00Z: "
        "the rule has no effect; remove it, or write a later time"
    )
