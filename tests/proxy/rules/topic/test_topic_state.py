"""Tests that proxies that have read the same topic have the same rules, in whichever order the proxies wrote them.

The terms of a rule are everything but its limits, such as its expiry.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_quota_proxy.config.model import DEFAULT, Enforcement
from kafka_quota_proxy.config.quota_record import (
    TERMS,
    RecordFault,
    Setting,
    decode,
    encode,
)
from kafka_quota_proxy.config.terms import Terms, written_terms
from kafka_quota_proxy.proxy.rules.model import Change, Entity, StoredRule
from kafka_quota_proxy.proxy.rules.topic.record_table import TopicRecord
from kafka_quota_proxy.proxy.rules.topic.topic_state import TopicState, settings_of

P, C, RATE = "producer_byte_rate", "consumer_byte_rate", "connection_creation_rate"
ALICE = Entity(user="alice")
Record = Setting | RecordFault


def rule(**limits: float) -> StoredRule:
    return StoredRule(limits=limits)


def setting(key: str, value: float | None, user: str = "alice") -> Setting:
    return Setting(user=user, key=key, value=value)


def garbage(key: bytes = b'{"user":"alice","key":"producer_byte_rate"}') -> RecordFault:
    found = decode(key, b"garbage")
    assert isinstance(found, RecordFault)
    return found


@dataclass
class Reader:
    """A ``TopicState``. ``told`` has the rules that result from the changes that the state has returned."""

    state: TopicState = field(default_factory=lambda: TopicState(name="kafka://k:9092/store", most=4))
    told: dict[Entity, StoredRule] = field(default_factory=dict)

    def starts(self, *records: Record, first: int = 0) -> "Reader":
        self.state.begin()
        self.takes(*records, first=first)
        self.state.end_reached(next_offset=first + len(records))
        return self

    def takes(self, *records: Record, first: int = 0) -> None:
        seen = [TopicRecord(first + index, record) for index, record in enumerate(records)]
        self.state.take(seen, next_offset=first + len(records))

    def settles(self, portion: int | None = None) -> list[Change]:
        found = []
        while self.state.is_unsettled:
            for change, _ in self.state.changes(portion):
                found.append(change)
                if change.rule is None:
                    del self.told[change.entity]
                else:
                    self.told[change.entity] = change.rule
        assert self.told == self.state.in_force
        return found

    def said(self) -> list[str]:
        found = list(self.state.notices)
        self.state.notices.clear()
        return found


# -- the rules in force --


def test_rules_come_in_the_order_of_the_topic_and_say_where_from() -> None:
    reader = Reader().starts(setting(P, 5.0), Setting(ip="::1", key=RATE, value=2.0), Setting(user="<default>", key=C))

    assert reader.state.changes() == [
        (Change(ALICE, rule(**{P: 5.0})), 0),
        (Change(Entity(ip="::1"), rule(**{RATE: 2.0})), 1),
    ]
    assert reader.state.next_offset == 3
    reader.takes(setting(C, 6.0), setting(P, None), first=3)
    assert reader.state.changes() == [(Change(ALICE, rule(**{C: 6.0})), 4)]
    reader.takes(setting(C, None), first=5)
    assert reader.state.changes() == [(Change(ALICE, None), 5)]
    assert reader.state.entities == 1


def test_recreated_topic_is_warned_of() -> None:
    reader = Reader().starts(setting(P, 1.0), setting(P, 2.0))
    reader.settles()

    reader.starts()

    assert reader.settles() == [Change(ALICE, None)]
    assert reader.said() == [
        "was created again: it ends at offset 0, and was read up to 2 before",
        "has no quotas any more; the known quotas of 1 entity are removed",
    ]


def test_garbage_is_counted_and_warned_of_once_a_key() -> None:
    reader = Reader().starts(setting(P, 1.0), garbage(), garbage(), garbage(b"?"))

    reader.settles()

    assert reader.told == {ALICE: rule(**{P: 1.0})}
    assert reader.state.not_understood == 3
    assert [text.partition(":")[0] for text in reader.said()] == [
        "offset 1 was not understood",
        "offset 3 was not understood",
    ]


def test_number_of_entities_is_bounded() -> None:
    reader = Reader().starts(*(setting(P, 1.0, user=f"u{number}") for number in range(6)))

    assert len(reader.settles()) == 4
    assert reader.said() == ["has more than 4 entities: further ones are ignored, from offset 4 on"]
    assert reader.state.not_understood == 2


# -- compared with an oracle: two proxies write in any order --

USERS = st.sampled_from(["a", DEFAULT])
OPS = st.dictionaries(st.sampled_from([P, C]), st.sampled_from([None, 1.0, 2.0]), min_size=1)
FOREIGN = st.one_of(
    st.sampled_from([garbage(b'{"user":"a","key":"producer_byte_rate"}'), garbage(b'{"user":"a"}'), garbage(b"?")]),
    st.just(garbage(b'{"user":"a","key":"terms"}')),
)


def expected(log: Iterable[Record]) -> dict[Entity, StoredRule]:
    """Return the rules by the last understood value of each key, without entities that have unknown terms."""
    last: dict[tuple[Entity, str], object] = {}
    for record in log:
        if isinstance(record, Setting):
            last[Entity(record.user, record.client_id, record.ip), record.key] = record.value
        elif isinstance(record, RecordFault) and isinstance(record.about, Setting) and record.about.key == TERMS:
            about = Entity(record.about.user, record.about.client_id, record.about.ip)
            last[about, TERMS] = last.get((about, TERMS)) or record
    found: dict[Entity, Mapping[str, float]] = {}
    for (entity, key), value in last.items():
        if key in (P, C) and value is not None and not last.get((entity, TERMS)):
            found[entity] = {**found.get(entity, {}), key: value}  # type: ignore[dict-item]
    return {entity: StoredRule(limits=limits) for entity, limits in found.items()}


def key_of(record: Record) -> object:
    return encode(record)[0] if not isinstance(record, RecordFault) else record.key.strip("'").encode()


def says_something(record: Record) -> bool:
    return isinstance(record, RecordFault) or encode(record)[1] is not None


def compacted(log: list[tuple[int, Record]]) -> list[tuple[int, Record]]:
    last = {key_of(record): (offset, record) for offset, record in log}
    return sorted((one for one in last.values() if says_something(one[1])), key=lambda one: one[0])


class Fleet:
    """Two proxies that write and read one log."""

    def __init__(self) -> None:
        self.log: list[Record] = []
        self.proxies = [Reader().starts(), Reader().starts()]
        self.read = [0, 0]

    def alter(self, proxy: int, user: str, ops: Mapping[str, float | None], *, lag: int) -> None:
        """Change a rule that the proxy knows. The proxy reads ``lag`` more records between decision and write."""
        entity, state = Entity(user=user), self.proxies[proxy].state
        before = dict(state.in_force)
        old = before[entity].limits if entity in before else {}
        new = {key: value for key, value in {**old, **ops}.items() if value is not None}
        self.fetch(proxy, lag)
        self.log += settings_of([Change(entity, StoredRule(limits=new) if new else None)], before)

    def fetch(self, proxy: int, count: int) -> None:
        first = self.read[proxy]
        some = self.log[first : first + count]
        self.proxies[proxy].takes(*some, first=first)
        self.read[proxy] += len(some)
        self.proxies[proxy].settles(1)
        assert self.proxies[proxy].told == expected(self.log[: self.read[proxy]])

    def read_again(self, proxy: int, *, is_compacted: bool) -> None:
        """Read the whole topic again, as after a lost connection. Compaction may have removed records."""
        known = list(enumerate(self.log[: self.read[proxy]]))
        rest = list(enumerate(self.log))[len(known) :]
        state = self.proxies[proxy].state
        state.begin()
        records = (compacted(known) if is_compacted else known) + rest
        state.take([TopicRecord(offset, record) for offset, record in records], next_offset=len(self.log))
        state.end_reached(next_offset=len(self.log))
        self.read[proxy] = len(self.log)
        self.proxies[proxy].settles(1)
        assert self.proxies[proxy].told == expected(self.log)


STEPS = st.one_of(
    st.builds(
        lambda proxy, user, ops, lag: lambda fleet: fleet.alter(proxy, user, ops, lag=lag),
        st.integers(0, 1), USERS, OPS, st.integers(0, 4),
    ),
    st.builds(lambda proxy, count: lambda fleet: fleet.fetch(proxy, count), st.integers(0, 1), st.integers(1, 5)),
    st.builds(
        lambda proxy, how: lambda fleet: fleet.read_again(proxy, is_compacted=how), st.integers(0, 1), st.booleans()
    ),
    st.builds(lambda record: lambda fleet: fleet.log.append(record), FOREIGN),
)  # fmt: skip


@settings(max_examples=120)
@given(st.lists(STEPS, max_size=40))
def test_all_readers_of_the_topic_have_the_same_rules(steps: list[Callable[[Fleet], None]]) -> None:
    fleet = Fleet()
    for step in steps:
        step(fleet)
    for proxy in (0, 1):
        fleet.fetch(proxy, len(fleet.log))
    late = Reader()
    log = compacted(list(enumerate(fleet.log)))
    late.state.begin()
    late.state.take([TopicRecord(offset, record) for offset, record in log], next_offset=len(fleet.log))
    late.state.end_reached(next_offset=len(fleet.log))
    late.settles()

    assert fleet.proxies[0].told == fleet.proxies[1].told == expected(fleet.log)
    assert late.told == expected(record for _, record in log)


def test_tombstones_do_not_count_as_entities() -> None:
    reader = Reader().starts(setting(P, 1.0, "u0"))
    records = [setting(P, None, f"u{number}") for number in range(5)]
    records += [setting(P, 2.0, f"u{number}") for number in (7, 8, 9)]
    reader.starts(*records, garbage(b'{"user":"u0","key":"producer_byte_rate"}'))
    reader.settles()

    assert {entity.user for entity in reader.told} == {"u7", "u8", "u9"}
    assert not any("ignored" in text for text in reader.said())


# -- terms --

TERMS_OF_ALICE = Terms(expires_ms=1_900_000_000_000)


def test_terms_are_a_record_of_their_own_and_go_with_the_rule() -> None:
    before, after = rule(**{P: 5.0}), StoredRule(limits={P: 5.0}, terms=TERMS_OF_ALICE)
    written = settings_of([Change(ALICE, after)], {ALICE: before})
    assert written == (Setting(user="alice", key=TERMS, value=written_terms(TERMS_OF_ALICE)),)

    reader = Reader().starts(setting(P, 5.0), *written)
    reader.settles()
    assert reader.told == {ALICE: after}

    gone = settings_of([Change(ALICE, None)], {ALICE: after})
    assert [one.key for one in gone] == [P, TERMS]
    reader.takes(*gone, first=2)
    assert reader.settles() == [Change(ALICE, None)]


def test_terms_without_limits_do_not_apply_to_the_next_rule() -> None:
    before, after = rule(**{P: 1.0}), StoredRule(limits={P: 1.0}, terms=TERMS_OF_ALICE)
    # Two proxies change the same rule at once. One removes the rule, the other sets terms for it.
    gone, expiring = (settings_of([Change(ALICE, one)], {ALICE: before}) for one in (None, after))
    reader = Reader().starts(setting(P, 1.0), *gone, *expiring)
    reader.settles()
    assert reader.told == {}

    left = reader.state.left_terms([ALICE, Entity("bob")])
    written = settings_of([Change(ALICE, rule(**{P: 5.0})), Change(Entity("bob"), rule(**{P: 6.0}))], {}, left)
    assert [(one.user, one.key) for one in written] == [("alice", P), ("alice", TERMS), ("bob", P)]
    reader.takes(*written, first=9)
    reader.settles()
    assert reader.told == {ALICE: rule(**{P: 5.0}), Entity("bob"): rule(**{P: 6.0})}
    assert reader.state.left_terms([ALICE]) == set()


def test_terms_hold_if_two_proxies_begin_a_rule_at_once() -> None:
    """Otherwise a limit that is only to be observed would be enforced."""
    observed = Terms(enforcement=Enforcement.OBSERVE)
    with_terms, without = (
        settings_of([Change(ALICE, one)], {}) for one in (StoredRule(limits={P: 1.0}, terms=observed), rule(**{C: 9.0}))
    )

    for log in ((*with_terms, *without), (*without, *with_terms)):
        reader = Reader().starts(*log)
        reader.settles()
        assert reader.told == {ALICE: StoredRule(limits={C: 9.0, P: 1.0}, terms=observed)}


def test_limits_without_their_terms_do_not_apply_and_cannot_be_changed() -> None:
    """Terms of a later version may exempt a client, which must then not be limited."""
    unknown = Setting(user="alice", key=TERMS, value={"schedule": {"hours": "08:00-18:00", "time_zone": "Mars/Base"}})
    for first in ((setting(P, 5.0), unknown), (unknown, setting(P, 5.0))):
        reader = Reader().starts(*first)

        assert reader.settles() == []
        assert list(reader.state.places) == [ALICE]
        (said,) = reader.said()
        assert said.endswith("; none of the limits that were set for this entity apply")

        reader.takes(setting(C, 6.0), first=2)
        assert reader.settles() == []
        reader.takes(Setting(user="alice", key=TERMS, value=written_terms(TERMS_OF_ALICE)), first=3)
        reader.settles()
        assert reader.told == {ALICE: StoredRule(limits={P: 5.0, C: 6.0}, terms=TERMS_OF_ALICE)}
        assert reader.state.places == {}


@pytest.mark.parametrize("value", ["\ud800", 10**400, ["a", ["b"]], {"\ud800": {}}, None])
def test_any_terms_leave_the_rest_of_the_topic_readable(value: object) -> None:
    """Some records can be read but not written, such as one with an unpaired surrogate."""
    reader = Reader().starts()
    for offset, inner in enumerate(({"enforcement": value}, {"schedule": {"time_zone": value}}, {"news": value})):
        key, text = b'{"user":"alice","key":"terms"}', json.dumps({"value": inner}).encode()
        reader.takes(decode(key, text), setting(P, 5.0, "bob"), first=2 * offset)
    reader.settles()

    assert reader.told == {Entity("bob"): rule(**{P: 5.0})}
    assert reader.state.not_understood == 3
    assert all(notice.encode() for notice in reader.said())


def test_invalid_terms_leave_the_previous_ones() -> None:
    reader = Reader().starts(setting(P, 5.0), Setting(user="alice", key=TERMS, value=written_terms(TERMS_OF_ALICE)))
    bad: list[Mapping[str, object]] = [{"expires": 7}, {"news": 1}, {"schedule": {"otherwise": {RATE: 1}}}]
    for offset, value in enumerate(bad, start=2):
        reader.takes(Setting(user="alice", key=TERMS, value=value), first=offset)
    reader.takes(Setting(ip="::1", key=TERMS, value={"enforcement": "observe"}), first=5)
    reader.settles()

    assert reader.told == {ALICE: StoredRule(limits={P: 5.0}, terms=TERMS_OF_ALICE)}
    assert reader.state.not_understood == 4
    assert "expires" in reader.said()[0]
