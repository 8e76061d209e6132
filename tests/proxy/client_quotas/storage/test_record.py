"""Rules as lines: what was written is read, what was changed is found out, what is not known is told."""

from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_quota_proxy.config.model import DEFAULT, Enforcement, Shaping
from kafka_quota_proxy.config.ramp import Ramp
from kafka_quota_proxy.config.schedule import Schedule
from kafka_quota_proxy.config.terms import NO_TERMS, Terms
from kafka_quota_proxy.proxy.client_quotas.rules.alter import Change
from kafka_quota_proxy.proxy.client_quotas.rules.entity import Entity, StoredRule, keys_of
from kafka_quota_proxy.proxy.client_quotas.storage.record import (
    DamagedLineError,
    ForeignLineError,
    Header,
    journal_header,
    read_changes,
    read_header,
    read_line,
    read_rule,
    snapshot_header,
    write_line,
    written_changes,
    written_rule,
)

NAMES = st.one_of(st.just(DEFAULT), st.text(min_size=1, max_size=8))
ENTITIES = st.one_of(
    st.builds(Entity, NAMES, st.one_of(st.none(), NAMES), st.none()),
    st.builds(Entity, st.none(), NAMES, st.none()),
    st.builds(Entity, st.none(), st.none(), NAMES),
)
LIMITS = st.floats(min_value=0, exclude_min=True, allow_infinity=False)
TERMS = st.sampled_from(
    [
        NO_TERMS,
        Terms(enforcement=Enforcement.OBSERVE, shaping=Shaping.PACED, expires_ms=1_800_000_000_000),
        Terms(
            schedule=Schedule(
                time_zone="Europe/Berlin", days=frozenset({0, 5}), begin_minute=1, otherwise=(("connections", 1),)
            ),
            ramp=Ramp(start=(("producer_byte_rate", 5.0),), begins_ms=1_800_000_000_000, over_ms=1_000, steps=3),
        ),
    ]
)


@st.composite
def changes(draw: st.DrawFn) -> Change:
    entity = draw(ENTITIES)
    limits = draw(st.dictionaries(st.sampled_from(sorted(keys_of(entity))), LIMITS))
    return Change(entity, StoredRule(limits=limits, terms=draw(TERMS)) if limits else None)


CHANGES = changes()


@given(number=st.integers(0, 2**63), changes=st.lists(CHANGES, max_size=4).map(tuple), before=st.integers(0, 2**32 - 1))
def test_changes_that_were_written_are_read(number: int, changes: tuple[Change, ...], before: int) -> None:
    line, checksum = write_line(written_changes(number, changes), before)

    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    content, told = read_line(line[:-1], before)
    assert read_changes(content) == (number, changes)
    assert told == checksum


@given(change=CHANGES)
def test_a_rule_that_was_written_is_read(change: Change) -> None:
    if change.rule is not None:
        content, _ = read_line(write_line(written_rule(change.entity, change.rule), 0)[0][:-1], 0)

        assert read_rule(content) == change


def test_terms_stand_beside_the_limits_and_what_is_none_is_foreign() -> None:
    names: dict[str, str | None] = {"user": "alice"}
    terms = Terms(expires_ms=1_800_000_000_000)
    rule = StoredRule(limits={"producer_byte_rate": 5.0}, terms=terms)

    value = {"producer_byte_rate": 5.0, "terms": {"expires": "2027-01-15T08:00:00Z"}}
    assert written_rule(Entity("alice"), rule) == [names, value]
    assert read_rule([names, value]) == (Entity("alice"), rule)
    with pytest.raises(ForeignLineError, match="terms of user alice: expires: 'soon' is not an instant"):
        read_rule([names, {"producer_byte_rate": 5.0, "terms": {"expires": "soon"}}])
    with pytest.raises(ForeignLineError, match="not the limits of a rule"):
        read_rule([names, {"terms": {"expires": "2027-01-15T08:00:00Z"}}])


def test_a_line_is_for_people_too() -> None:
    change = Change(Entity("alice", DEFAULT), StoredRule(limits={"producer_byte_rate": 5_242_880.0}))

    line, _ = write_line(written_changes(101, [change, Change(Entity(ip="::1"), None)]), 0)

    # The checksum is that of zlib.crc32 of what stands behind it.
    assert line == (
        b'5871571d {"n":101,"changes":[[{"user":"alice","client-id":null},{"producer_byte_rate":5242880.0}],'
        b'[{"ip":"::1"},null]]}\n'
    )


def test_headers_that_were_written_are_read() -> None:
    assert read_header(journal_header(100)) == Header("journal", 100, 0)
    assert read_header(snapshot_header(100, 2)) == Header("snapshot", 100, 2)


def test_a_line_that_is_not_as_it_was_written_is_found_out() -> None:
    line, checksum = write_line(written_changes(1, [Change(Entity("alice"), None)]), 7)
    whole = line[:-1]

    for at in range(len(whole)):
        for bit in range(8):
            damaged = bytearray(whole)
            damaged[at] ^= 1 << bit
            with pytest.raises(DamagedLineError):
                read_line(bytes(damaged), 7)
        with pytest.raises(DamagedLineError):
            read_line(whole[:at], 7)
    for before in (0, 8, checksum):
        with pytest.raises(DamagedLineError):
            read_line(whole, before)


@given(data=st.binary(max_size=60))
def test_any_bytes_are_no_line(data: bytes) -> None:
    with pytest.raises(DamagedLineError):
        read_line(data, 7)


@pytest.mark.parametrize(
    "content",
    [
        *(None, 7, "text", [], {}, {"n": 1}, {"n": -1, "changes": []}, {"n": True, "changes": []}),
        *({"n": 1.0, "changes": []}, {"n": 1, "changes": {}}, {"n": 1, "changes": [], "more": 1}),
        {"n": 1, "changes": [7]},
        {"n": 1, "changes": [[]]},
        {"n": 1, "changes": [[{}, {}]]},
        {"n": 1, "changes": [[{"user": "a"}]]},
        {"n": 1, "changes": [[{"user": "a"}, None, None]]},
        *(
            {"n": 1, "changes": [[entity, None]]}
            for entity in (None, {}, {"topic": "t"}, {"user": ""}, {"user": 7}, {"ip": "::1", "user": "a"})
        ),
        *(
            {"n": 1, "changes": [[{"user": "a"}, limits]]}
            for limits in (
                *(7, [], {}, {"enforcement": "observe"}, {"connection_creation_rate": 1.0}),
                *({"producer_byte_rate": value} for value in (None, "1", True, 0, -1.0, [1.0])),
            )
        ),
        {"n": 1, "changes": [[{"ip": "::1"}, {"producer_byte_rate": 1.0}]]},
    ],
)
def test_what_is_no_change_of_this_version_is_told(content: object) -> None:
    with pytest.raises(ForeignLineError):
        read_changes(content)


@pytest.mark.parametrize(
    "content",
    [
        *(None, 7, [], {}, {"kafka-quota-store": 2, "file": "journal", "after": 1}),
        *({"kafka-quota-store": 1, "file": file, "after": 1} for file in ("snapshot", "other", None)),
        *({"kafka-quota-store": 1, "file": "journal", "after": after} for after in (-1, None, "1", True)),
        {"kafka-quota-store": 1, "file": "journal", "after": 1, "rules": 1},
    ],
)
def test_what_is_no_first_line_of_this_version_is_told(content: object) -> None:
    with pytest.raises(ForeignLineError):
        read_header(content)


@pytest.mark.parametrize("content", [None, [{"user": "a"}, None], [{"user": "a"}]])
def test_what_is_no_rule_is_told(content: object) -> None:
    with pytest.raises(ForeignLineError):
        read_rule(content)


@pytest.mark.parametrize("text", [b"", b"{", b"\xff", b"[" * 100_000])
def test_a_checksum_does_not_make_json_of_it(text: bytes) -> None:
    line, _ = write_line("", 0)

    assert line == b"%08x " % crc32(b'""') + b'""\n'
    with pytest.raises(ForeignLineError):
        read_line(b"%08x " % crc32(text) + text, 0)


def test_a_rule_that_somebody_has_published_may_limit_what_a_file_may() -> None:
    rule = StoredRule(limits={"request_rate": 7.5, "connections": 3})

    read = read_rule(written_rule(Entity(user="alice"), rule))[1]

    assert read == rule
    assert isinstance(read.limits["connections"], int)
