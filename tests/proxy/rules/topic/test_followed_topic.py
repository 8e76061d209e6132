"""Tests which rules of a followed topic and a configuration file are in force.

Terms are all of a rule but its limits.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_quota_proxy.config.model import DEFAULT, EntityName, ProxyConfig, QuotaRule
from kafka_quota_proxy.config.quota_record import TERMS, QuotaRecord, RecordFault, Rule, Setting, decode
from kafka_quota_proxy.proxy.quota.entity import Entity
from kafka_quota_proxy.proxy.rules.effective import EffectiveRules
from kafka_quota_proxy.proxy.rules.topic.record_table import TopicRecord
from kafka_quota_proxy.proxy.rules.topic.topic_state import TopicState

FILE = QuotaRule(user="filed", producer_byte_rate=7.0, source="f.yaml:3")


def produce(byte_rate: float) -> dict[str, float]:
    return {"producer_byte_rate": byte_rate}


def alice(byte_rate: float) -> Rule:
    return Rule(user="alice", limits=produce(byte_rate))


class FollowedRules:
    """The rules of a followed topic and of a file. ``changes`` and ``in_force`` leave out the file's own rules."""

    def __init__(self, *file_rules: QuotaRule, most: int | None = None) -> None:
        self.topic = TopicState(name="kafka://store", is_followed=True, most=most)
        self.merged = EffectiveRules(
            ProxyConfig(listeners=(), quotas=file_rules),
            name="kafka://k:9092/store",
            now_ms=0,
            places=self.topic.places,
            is_writable=False,
        )
        self.notices = self.topic.notices
        self.begin = self.topic.begin
        self._of_file: dict[Entity, QuotaRule | None] = {}

    def take(self, records: Iterable[TopicRecord]) -> None:
        seen = tuple(records)
        self.topic.take(seen, next_offset=seen[-1].offset + 1 if seen else self.topic.next_offset)

    def end_reached(self) -> None:
        self.topic.end_reached(next_offset=self.topic.next_offset)

    def follow_file(self, rules: Iterable[QuotaRule]) -> None:
        found = self.merged.follow_file(ProxyConfig(listeners=(), quotas=tuple(rules)), now_ms=0)
        self._of_file = {entity: rule for entity, rule in found.rules.items() if _is_of_topic(rule)}

    def changes(self, most: int | None = None) -> dict[Entity, QuotaRule | None]:
        found = self.merged.change([one.change for one in self.topic.changes(most)], now_ms=0)
        of_file, self._of_file = self._of_file, {}
        return {**of_file, **found.rules}

    @property
    def in_force(self) -> dict[Entity, QuotaRule]:
        return {(rule.user, rule.client_id): rule for rule in self.merged.quotas if _is_of_topic(rule)}


def _is_of_topic(rule: QuotaRule | None) -> bool:
    return rule is not None and rule.source.startswith("kafka:")


@dataclass
class Topic:
    """The rules of a topic. Its methods read further records into the rules."""

    state: FollowedRules = field(default_factory=lambda: FollowedRules(FILE))
    offset: int = 0

    def read(self, *records: QuotaRecord | RecordFault) -> None:
        seen = []
        for record in records:
            seen.append(TopicRecord(self.offset, record))
            self.offset += 1
        self.state.take(seen)

    def started(self, *records: QuotaRecord | RecordFault) -> "Topic":
        self.state.begin()
        self.read(*records)
        self.state.end_reached()
        return self

    def rates(self) -> dict[Entity, float | None]:
        self.state.changes()
        return {entity: rule.limits.get("producer_byte_rate") for entity, rule in self.state.in_force.items()}

    def said(self) -> list[str]:
        found = list(self.state.notices)
        self.state.notices.clear()
        return found


ALICE: Entity = ("alice", None)


# -- settings --


def setting(key: str, value: float | None, user: str = "alice") -> Setting:
    return Setting(user=user, key=key, value=value)


def test_addresses_and_terms_are_counted_and_logged_as_for_stores() -> None:
    rate = {"connection_creation_rate": 1.0}
    topic = Topic().started(
        Rule(ip="192.0.2.7", limits=rate),
        Setting(ip=DEFAULT, key="connection_creation_rate", value=1.0),
        Setting(user="alice", key=TERMS, value={"expires": "2030-01-01T00:00:00Z"}),
    )

    assert topic.rates() == {}
    assert topic.state.topic.not_understood == 3  # the terms count too: alice has no limit that they could apply to
    assert topic.said()[0] == (
        'offset 0 was not understood: key of {"ip":"192.0.2.7"}: limits of addresses apply only if the topic '
        "is the proxy's store"
    )


@pytest.mark.parametrize(
    "deletion",
    [
        Rule(ip="192.0.2.7"),
        Setting(ip="192.0.2.7", key="connection_creation_rate"),
        Setting(ip="192.0.2.7", key=TERMS),
        Setting(user="alice", key=TERMS),
    ],
)
def test_a_tombstone_of_a_store_record_is_understood(deletion: Rule | Setting) -> None:
    topic = Topic().started(deletion)

    topic.read(deletion)

    assert (topic.state.topic.records, topic.state.topic.not_understood, topic.said()) == (2, 0, [])


def test_settings_that_have_terms_do_not_hold_without_them() -> None:
    """Otherwise a limit that is only to be observed would be enforced."""
    terms = Setting(user="alice", key=TERMS, value={"enforcement": "observe"})
    topic = Topic().started(setting("producer_byte_rate", 5.0), setting("producer_byte_rate", 6.0, "bob"), terms)
    bob: Entity = ("bob", None)
    assert topic.rates() == {bob: 6.0}
    (said,) = topic.said()
    assert said == (
        'offset 2 was not understood: key of {"user":"alice","key":"terms"}: terms apply only if the topic is '
        "the proxy's store; none of the limits that were set for this entity apply"
    )

    topic.read(setting("producer_byte_rate", 7.0), terms)
    assert (topic.rates(), topic.said()) == ({bob: 6.0}, [])
    topic.read(setting(TERMS, None))
    assert topic.rates() == {ALICE: 7.0, bob: 6.0}
    topic.read(terms)
    assert topic.state.changes() == {ALICE: None}


def test_terms_that_could_not_be_written_again_are_counted() -> None:
    topic = Topic().started(decode(b'{"user":"alice","key":"terms"}', b'{"value":{"expires":"\\ud800"}}'), alice(5.0))

    assert topic.rates() == {ALICE: 5.0}
    assert topic.state.topic.not_understood == 1
    assert "has text with half of a pair of surrogates" in topic.said()[0]


def test_settings_with_terms_of_an_unknown_form_do_not_hold() -> None:
    unknown = decode(b'{"user":"alice","key":"terms"}', b'{"value":["of a later version"]}')
    topic = Topic().started(setting("producer_byte_rate", 5.0))
    assert topic.rates() == {ALICE: 5.0}

    topic.read(unknown)
    assert topic.rates() == {}
    topic.started(setting("producer_byte_rate", 5.0), unknown)
    assert topic.rates() == {}
    topic.read(setting(TERMS, None))
    assert topic.rates() == {ALICE: 5.0}


# -- the file --


def test_a_reload_hides_and_returns_rules_of_the_topic() -> None:
    topic = Topic().started(alice(5.0), Rule(user="filed", limits=produce(4.0)))
    assert topic.rates() == {ALICE: 5.0}

    topic.state.follow_file([QuotaRule(user="alice", request_rate=1.0, source="f.yaml:9")])
    # The rule of alice, which the file now hides, is not reported as removed.
    assert topic.state.changes() == {
        ("filed", None): QuotaRule(user="filed", producer_byte_rate=4.0, source="kafka://store@1")
    }
    assert topic.state.merged.overruled == 1
    topic.state.follow_file([])
    assert topic.rates() == {ALICE: 5.0, ("filed", None): 4.0}


# -- what is not understood --


def garbage(key: bytes = b'{"user":"alice"}', value: bytes | None = b"garbage") -> RecordFault:
    found = decode(key, value)
    assert isinstance(found, RecordFault)
    return found


# -- compared with an oracle --


def test_tombstones_do_not_count_as_entities() -> None:
    topic = Topic(FollowedRules(most=3)).started(Rule(user="u0", limits=produce(1.0)))
    topic.state.begin()
    topic.read(*(Rule(user=f"u{number}") for number in range(5)))
    topic.read(*(Rule(user=f"u{number}", limits=produce(2.0)) for number in (7, 8, 9)), garbage(b'{"user":"u0"}'))
    topic.state.end_reached()

    assert topic.rates() == {("u7", None): 2.0, ("u8", None): 2.0, ("u9", None): 2.0}
    assert not any("passed over" in text for text in topic.said())


USERS = st.sampled_from(["a", "b", DEFAULT])
RATES = st.dictionaries(
    st.sampled_from(["producer_byte_rate", "consumer_byte_rate"]), st.sampled_from([1.0, 2.0]), max_size=2
)
WRITTEN = st.one_of(
    st.builds(lambda user, limits: Rule(user=user, limits=limits), USERS, RATES),
    st.builds(
        lambda user, key, value: Setting(user=user, key=key, value=value),
        USERS, st.sampled_from(["producer_byte_rate", "consumer_byte_rate"]), st.sampled_from([None, 3.0, 4.0]),
    ),
    st.builds(
        lambda user, value: Setting(user=user, key=TERMS, value=value),
        USERS, st.sampled_from([None, {"enforcement": "observe"}]),
    ),
    st.sampled_from([
        garbage(b'{"user":"a"}'), garbage(b'{"user":"a","key":"producer_byte_rate"}'),
        garbage(b'{"proxy":"p1","user":"a"}'), garbage(b"?"),
    ]),
)  # fmt: skip


@dataclass
class Oracle:
    """Computes the rules that should be in force, from the whole log each time."""

    log: list[QuotaRecord | RecordFault] = field(default_factory=list)
    read: int = 0  # how many records of the log have been read
    file: set[str] = field(default_factory=set)

    def expected(self) -> dict[Entity, Mapping[str, float]]:
        known = self.log[: self.read]
        rules = settings_of(known)
        rules |= {user: limits for user, limits in rules_of(known).items() if limits}
        return {(user, None): limits for user, limits in rules.items() if limits and user not in self.file}


def rules_of(records: Iterable[QuotaRecord | RecordFault]) -> dict[EntityName, Mapping[str, float]]:
    return {record.user: record.limits for record in records if isinstance(record, Rule)}


def settings_of(records: Iterable[QuotaRecord | RecordFault]) -> dict[EntityName, Mapping[str, float]]:
    """Return the last value of each key for each user, without the users that have terms."""
    last = {(record.user, record.key): record.value for record in records if isinstance(record, Setting)}
    found: dict[EntityName, dict[str, float]] = {}
    for (user, key), value in last.items():
        if isinstance(value, float):
            found.setdefault(user, {})[key] = value
    return {user: limits for user, limits in found.items() if last.get((user, TERMS)) is None}


def compacted(records: Iterable[tuple[int, QuotaRecord | RecordFault]]) -> list[tuple[int, QuotaRecord | RecordFault]]:
    """Return what compaction leaves: the last record of each key, without tombstones."""
    last: dict[object, tuple[int, QuotaRecord | RecordFault]] = {}
    for offset, record in records:
        about = record.about if isinstance(record, RecordFault) else record
        key = (type(about), getattr(about, "user", None), getattr(about, "key", None))
        last.pop(key, None)
        last[key] = (offset, record)
    return [one for one in last.values() if isinstance(one[1], RecordFault) or says_something(one[1])]


def says_something(record: Rule | Setting) -> bool:
    return record.value is not None if isinstance(record, Setting) else bool(record.limits)


class Run:
    """Runs ``FollowedRules`` on the oracle's records. ``told`` has the rules that result from the reported changes."""

    def __init__(self) -> None:
        self.state, self.oracle = FollowedRules(), Oracle()
        self.state.begin()
        self.state.end_reached()
        self.told: dict[Entity, QuotaRule] = {}

    def write(self, record: QuotaRecord | RecordFault) -> None:
        self.oracle.log.append(record)

    def take_file(self, users: set[str]) -> None:
        self.oracle.file = users
        self.state.follow_file([QuotaRule(user=user) for user in users])
        self.told = {entity: rule for entity, rule in self.told.items() if entity[0] not in users}

    def fetch(self, *, is_second: bool = False, is_compacted: bool = False) -> None:
        records = list(enumerate(self.oracle.log))
        known, new = records[: self.oracle.read], records[self.oracle.read :]
        self.oracle.read = len(records)
        if is_second:
            self.state.begin()
            new = (compacted(known) if is_compacted else known) + new
        self.state.take(TopicRecord(offset, record) for offset, record in new)
        if is_second:
            self.state.end_reached()

    def settle(self, portion: int) -> None:
        while True:
            for entity, rule in self.state.changes(portion).items():
                if rule is None:
                    del self.told[entity]
                else:
                    self.told[entity] = rule
            if not self.state.topic.is_unsettled:
                break


@settings(max_examples=120)
@given(
    st.lists(
        st.one_of(
            st.builds(lambda record: lambda run: run.write(record), WRITTEN),
            st.builds(lambda users: lambda run: run.take_file(users), st.sets(st.sampled_from(["a", "b"]))),
            st.just(lambda run: run.fetch()),
            st.builds(lambda how: lambda run: run.fetch(is_second=True, is_compacted=how), st.booleans()),
        ),
        max_size=40,
    ),
    st.integers(1, 3),
)
def test_rules_equal_those_of_the_whole_log(steps: list[Callable[[Run], None]], portion: int) -> None:
    run = Run()
    for step in steps:
        step(run)
        run.settle(portion)

        assert {entity: limits_of(rule) for entity, rule in run.told.items()} == run.oracle.expected()
        assert run.told == run.state.in_force


def limits_of(rule: QuotaRule) -> dict[str, float]:
    rates = {
        "producer_byte_rate": rule.limits.get("producer_byte_rate"),
        "consumer_byte_rate": rule.limits.get("consumer_byte_rate"),
    }
    return {key: rate for key, rate in rates.items() if rate is not None}
