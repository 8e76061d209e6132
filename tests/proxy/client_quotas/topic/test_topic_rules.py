"""Tests which rules of a quota topic and a configuration file are in force.

A share is a proxy's part of a quota, for the time of a lease. News renew the lease. Terms are all of a rule but its
limits.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_quota_proxy.config.model import DEFAULT, EntityName, QuotaRule
from kafka_quota_proxy.config.quota_record import TERMS, News, QuotaRecord, RecordFault, Rule, Setting, Share, decode
from kafka_quota_proxy.proxy.client_quotas.topic.record_table import Notice, TopicRecord
from kafka_quota_proxy.proxy.client_quotas.topic.topic_rules import TopicRules
from kafka_quota_proxy.proxy.quota.entity import Entity

# The tests' monotonic clock and wall clock, which are independent of each other.
NOW_MS = 5_000_000
WALL_MS = 1_767_225_600_000
FILE = QuotaRule(user="filed", producer_byte_rate=7.0, source="f.yaml:3")
NEWS = News(published_ms=WALL_MS, lease_ms=10_000)


def produce(byte_rate: float) -> dict[str, float]:
    return {"producer_byte_rate": byte_rate}


def alice(byte_rate: float) -> Rule:
    return Rule(user="alice", limits=produce(byte_rate))


def share(byte_rate: float, proxy: str = "p1") -> Share:
    return Share(proxy=proxy, user="alice", limits=produce(byte_rate))


@dataclass
class Topic:
    """The rules of a topic. Its methods read further records into the rules."""

    state: TopicRules = field(default_factory=lambda: TopicRules(proxy="p1", topic="store", file_rules=[FILE]))
    offset: int = 0

    def read(
        self, *records: QuotaRecord | RecordFault, now_ms: int = NOW_MS, since_ms: int | None = NOW_MS, age_ms: int = 0
    ) -> None:
        seen = []
        for record in records:
            seen.append(TopicRecord(self.offset, WALL_MS - age_ms, record))
            self.offset += 1
        self.state.take(seen, since_ms=since_ms, now_ms=now_ms, wall_ms=WALL_MS)

    def started(self, *records: QuotaRecord | RecordFault, age_ms: int = 0) -> "Topic":
        self.state.begin()
        self.read(*records, since_ms=None, age_ms=age_ms)
        self.state.end_reached(now_ms=NOW_MS)
        return self

    def rates(self) -> dict[Entity, float | None]:
        self.state.changes()
        return {entity: rule.limits.get("producer_byte_rate") for entity, rule in self.state.in_force.items()}

    def said(self) -> list[str]:
        return [("warning: " if one.is_warning else "") + one.text for one in self.state.notices]


ALICE: Entity = ("alice", None)


# -- rules --


def test_a_rule_of_the_topic_holds_and_has_its_offset_as_source() -> None:
    topic = Topic().started(Rule(user=DEFAULT, limits={}), alice(5.0))

    assert topic.state.changes() == {
        ("alice", None): QuotaRule(user="alice", producer_byte_rate=5.0, source="kafka://store@1")
    }
    assert topic.said() == []


def test_a_later_record_replaces_a_rule_and_a_tombstone_removes_it() -> None:
    topic = Topic().started(alice(5.0))
    topic.rates()

    topic.read(Rule(user="alice", limits={"consumer_byte_rate": 6.0}))
    assert topic.state.changes() == {
        ALICE: QuotaRule(user="alice", consumer_byte_rate=6.0, source="kafka://store@1"),
    }
    topic.read(Rule(user="alice"))
    assert topic.state.changes() == {ALICE: None}
    assert topic.state.in_force == {}


def test_the_same_record_again_changes_nothing() -> None:
    topic = Topic().started(alice(5.0))
    topic.rates()

    topic.read(alice(5.0))

    assert topic.state.is_unsettled
    assert topic.state.changes() == {}


def test_changes_come_in_portions() -> None:
    topic = Topic().started(*(Rule(user=f"u{number}", limits=produce(1.0)) for number in range(10)))

    portions = []
    while topic.state.is_unsettled:
        portions.append([entity[0] for entity in topic.state.changes(4)])

    assert portions == [["u0", "u1", "u2", "u3"], ["u4", "u5", "u6", "u7"], ["u8", "u9"]]


def test_changes_taken_back_are_returned_again() -> None:
    topic = Topic().started(alice(5.0), Rule(user="bob", limits=produce(1.0)))
    topic.state.changes()
    topic.read(alice(6.0), Rule(user="bob"))
    changes = topic.state.changes()

    topic.state.take_back(changes)
    assert topic.state.is_unsettled
    assert topic.state.changes() == changes
    topic.state.take_back(changes)
    topic.read(alice(7.0))
    assert topic.state.changes()[ALICE] == topic.state.in_force[ALICE]
    assert not topic.state.is_unsettled
    topic.read(alice(7.0))
    assert topic.state.changes() == {}


def test_a_rule_that_the_file_took_over_is_not_reported_as_removed() -> None:
    topic = Topic().started(alice(5.0))
    topic.state.take_back(topic.state.changes())

    topic.state.follow_file([QuotaRule(user="alice", request_rate=1.0, source="f.yaml:9")])

    assert topic.state.changes() == {}


def test_every_kind_of_limit_is_accepted() -> None:
    limits = {
        "producer_byte_rate": 1.0, "consumer_byte_rate": 2.0, "request_percentage": 3.0, "request_rate": 4.0,
        "controller_mutation_rate": 5.0, "connections": 6,
    }  # fmt: skip
    topic = Topic().started(Rule(user=DEFAULT, client_id="x", limits=limits))
    topic.rates()

    assert topic.state.in_force[DEFAULT, "x"] == QuotaRule(
        user=DEFAULT, client_id="x", source="kafka://store@0", **limits  # type: ignore[arg-type]
    )  # fmt: skip


def test_a_long_name_is_bounded_as_in_the_table_of_rules() -> None:
    name = "n" * 300
    topic = Topic(TopicRules(proxy="p1", topic="store", file_rules=[QuotaRule(client_id=name, connections=1)]))

    topic.started(Rule(client_id=name, limits=produce(1.0)), Rule(user=name, limits=produce(2.0)))

    ((user, client_id),) = topic.rates()
    assert client_id is None
    assert isinstance(user, str)
    assert len(user) < 256


# -- settings --


def setting(key: str, value: float | None, user: str = "alice") -> Setting:
    return Setting(user=user, key=key, value=value)


def test_settings_of_an_entity_are_one_rule_and_are_deleted_one_by_one() -> None:
    topic = Topic().started(setting("producer_byte_rate", 5.0), setting("consumer_byte_rate", 1e300))
    source = "kafka://store@1"
    assert topic.state.changes() == {
        ALICE: QuotaRule(user="alice", producer_byte_rate=5.0, consumer_byte_rate=1e300, source=source)
    }

    topic.read(setting("consumer_byte_rate", None))
    assert topic.rates() == {ALICE: 5.0}
    topic.read(setting("producer_byte_rate", None))
    assert topic.state.changes() == {ALICE: None}


def test_a_rule_hides_settings_and_they_return_after_it() -> None:
    topic = Topic().started(setting("consumer_byte_rate", 5.0), alice(7.0))
    assert topic.rates() == {ALICE: 7.0}
    assert topic.state.in_force[ALICE].limits.get("consumer_byte_rate") is None

    topic.read(Rule(user="alice"))
    assert topic.state.changes()[ALICE] == QuotaRule(user="alice", consumer_byte_rate=5.0, source="kafka://store@0")


def test_addresses_and_terms_are_counted_and_logged_as_for_stores() -> None:
    rate = {"connection_creation_rate": 1.0}
    topic = Topic().started(
        Rule(ip="192.0.2.7", limits=rate),
        Setting(ip=DEFAULT, key="connection_creation_rate", value=1.0),
        Setting(user="alice", key=TERMS, value={"expires": "2030-01-01T00:00:00Z"}),
    )

    assert topic.rates() == {}
    assert topic.state.not_understood == 3  # the terms count too: alice has no limit that they could apply to
    assert topic.said()[0] == (
        'warning: offset 0 was not understood: key of {"ip":"192.0.2.7"}: limits of addresses apply only if the topic '
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

    assert (topic.state.records, topic.state.not_understood, topic.said()) == (2, 0, [])


def test_settings_that_have_terms_do_not_hold_without_them() -> None:
    """Otherwise a limit that is only to be observed would be enforced."""
    terms = Setting(user="alice", key=TERMS, value={"enforcement": "observe"})
    topic = Topic().started(setting("producer_byte_rate", 5.0), setting("producer_byte_rate", 6.0, "bob"), terms)
    bob: Entity = ("bob", None)
    assert topic.rates() == {bob: 6.0}
    (said,) = topic.said()
    assert said == (
        'warning: offset 2 was not understood: key of {"user":"alice","key":"terms"}: terms apply only if the topic is '
        "the proxy's store; none of the limits that were set for this entity apply"
    )

    topic.read(setting("producer_byte_rate", 7.0), terms)
    assert (topic.rates(), topic.said()) == ({bob: 6.0}, [])
    topic.read(setting(TERMS, None))
    assert topic.rates() == {ALICE: 7.0, bob: 6.0}
    topic.read(terms)
    assert topic.state.changes() == {ALICE: None}

    topic.read(alice(8.0), NEWS, share(4.0))
    assert topic.rates() == {ALICE: 4.0, bob: 6.0}
    topic.read(Rule(user="alice"))
    assert topic.rates() == {ALICE: 4.0, bob: 6.0}, "a share is its publisher's"


def test_terms_that_could_not_be_written_again_are_counted() -> None:
    topic = Topic().started(decode(b'{"user":"alice","key":"terms"}', b'{"value":{"expires":"\\ud800"}}'), alice(5.0))

    assert topic.rates() == {ALICE: 5.0}
    assert topic.state.not_understood == 1
    assert "value.expires holds half of a pair of surrogates" in topic.said()[0]


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


def test_the_file_overrules_the_topic_and_that_is_logged_once() -> None:
    topic = Topic().started(NEWS, Rule(user="filed", limits=produce(5.0)))
    topic.read(Share(proxy="p1", user="filed", limits=produce(4.0)))

    assert topic.rates() == {}
    assert topic.said() == [
        "the topic has news: 0 shares of this proxy applied",
        "warning: has a limit for user 'filed', whose rule is in f.yaml:3: the rule of the file applies; remove one",
    ]
    topic.read(Rule(user="filed", limits=produce(6.0)))
    assert topic.rates() == {}
    assert topic.said() == []


def test_a_reload_hides_and_returns_rules_of_the_topic() -> None:
    topic = Topic().started(alice(5.0), Rule(user="filed", limits=produce(4.0)))
    assert topic.rates() == {ALICE: 5.0}

    topic.state.follow_file([QuotaRule(user="alice", request_rate=1.0, source="f.yaml:9")])
    # The rule of alice, which the file now hides, is not reported as removed.
    assert topic.state.changes() == {
        ("filed", None): QuotaRule(user="filed", producer_byte_rate=4.0, source="kafka://store@1")
    }
    assert "user 'alice', whose rule is in f.yaml:9" in topic.said()[-1]
    topic.state.follow_file([])
    assert topic.rates() == {ALICE: 5.0, ("filed", None): 4.0}


# -- shares and their lease --


def test_a_share_replaces_the_rule_key_by_key_while_the_lease_lasts() -> None:
    topic = Topic().started(Rule(user="alice", limits={"producer_byte_rate": 5.0, "consumer_byte_rate": 6.0}))
    topic.read(share(2.0), share(9.0, proxy="p2"), NEWS)

    assert topic.state.changes() == {
        ALICE: QuotaRule(user="alice", producer_byte_rate=2.0, consumer_byte_rate=6.0, source="kafka://store@1")
    }
    assert (topic.state.rules, topic.state.shares) == (1, 1)


def test_without_news_no_share_holds() -> None:
    topic = Topic().started(alice(5.0), share(2.0))

    assert topic.rates() == {ALICE: 5.0}
    assert topic.said() == []


def test_a_share_without_a_rule_ends_with_the_lease() -> None:
    topic = Topic().started(Rule(user=DEFAULT, limits=produce(5.0)), share(2.0), NEWS)
    assert topic.rates() == {(DEFAULT, None): 5.0, ALICE: 2.0}

    topic.state.advance(now_ms=NOW_MS + 10_000)

    assert topic.state.changes() == {ALICE: None}


def test_the_lease_ends_on_time_and_begins_again_with_the_next_news() -> None:
    topic = Topic().started(alice(5.0), share(2.0), NEWS)
    assert topic.state.next_ms == NOW_MS + 10_000
    topic.state.advance(now_ms=NOW_MS + 9_999)
    assert (topic.rates(), topic.state.has_lease) == ({ALICE: 2.0}, True)

    topic.state.advance(now_ms=NOW_MS + 10_000)
    assert topic.rates() == {ALICE: 5.0}
    assert topic.state.next_ms is None
    assert topic.state.lease_ends == 1

    topic.read(NEWS, now_ms=NOW_MS + 20_000, since_ms=NOW_MS + 19_700)
    assert (topic.rates(), topic.state.next_ms) == ({ALICE: 2.0}, NOW_MS + 29_700)
    assert topic.said() == [
        "the topic has news: 1 share of this proxy applied",
        "warning: no news within the lease: 1 share of this proxy ended, and the rules for all proxies apply",
        "the topic has news: 1 share of this proxy applied",
    ]


def test_the_lease_lasts_while_news_come() -> None:
    topic = Topic().started(alice(5.0), share(2.0), NEWS)

    for step in range(1, 20):
        topic.read(NEWS, now_ms=NOW_MS + step * 8_000, since_ms=NOW_MS + step * 8_000 - 500)

    assert topic.state.lease_ends == 0
    assert topic.state.news_heard_ms == NOW_MS + 19 * 8_000 - 500


def test_each_news_sets_the_length_of_its_lease() -> None:
    topic = Topic().started(NEWS)

    topic.read(News(published_ms=WALL_MS, lease_ms=3_000))

    assert topic.state.next_ms == NOW_MS + 3_000


def test_deleted_news_end_the_lease_at_once() -> None:
    topic = Topic().started(alice(5.0), share(2.0), NEWS)

    topic.read(News())

    assert topic.rates() == {ALICE: 5.0}


def test_at_the_start_news_are_as_old_as_their_timestamp() -> None:
    fresh, old = Topic(), Topic()

    fresh.started(alice(5.0), share(2.0), NEWS, age_ms=9_000)
    old.started(alice(5.0), share(2.0), NEWS, age_ms=10_000)

    assert (fresh.rates(), fresh.state.next_ms) == ({ALICE: 2.0}, NOW_MS + 1_000)
    assert old.rates() == {ALICE: 5.0}
    assert old.said() == []


def test_a_timestamp_in_the_future_counts_as_now() -> None:
    topic = Topic().started(share(2.0), NEWS, age_ms=-3_600_000)

    assert topic.state.next_ms == NOW_MS + 10_000


def test_the_lease_of_live_news_counts_from_the_fetch_before_and_ignores_clocks() -> None:
    topic = Topic().started(share(2.0))

    topic.read(NEWS, since_ms=NOW_MS - 400, age_ms=3_600_000)

    assert topic.state.next_ms == NOW_MS + 9_600


def test_news_that_arrive_late_leave_less_of_the_lease() -> None:
    """A stopped process or a slow connection may deliver news after the end of their lease."""
    topic = Topic().started(alice(5.0), share(2.0), NEWS)

    topic.read(NEWS, now_ms=NOW_MS + 60_000, since_ms=NOW_MS + 500)

    assert topic.rates() == {ALICE: 5.0}


# -- read again --


def test_rereading_replaces_the_rules_once_its_end_is_reached() -> None:
    topic = Topic().started(alice(5.0), Rule(user="gone", limits=produce(1.0)), share(2.0), NEWS)
    topic.rates()

    topic.state.begin()
    topic.read(alice(6.0), Rule(user="new", limits=produce(3.0)), since_ms=NOW_MS - 1_000)
    assert topic.rates() == {ALICE: 2.0, ("gone", None): 1.0}
    topic.state.end_reached(now_ms=NOW_MS)

    assert {
        entity: rule and rule.limits.get("producer_byte_rate") for entity, rule in topic.state.changes().items()
    } == {
        ALICE: 6.0,
        ("gone", None): None,
        ("new", None): 3.0,
    }
    assert topic.state.shares == 0
    # No shares hold, because the topic no longer has news.
    assert not topic.state.has_lease


def test_reread_news_do_not_renew_the_lease() -> None:
    topic = Topic().started(share(2.0), NEWS)
    topic.state.begin()
    topic.offset = 0
    topic.read(share(2.0), NEWS, now_ms=NOW_MS + 8_000, since_ms=NOW_MS + 7_000)
    topic.state.end_reached(now_ms=NOW_MS + 8_000)

    assert topic.state.next_ms == NOW_MS + 10_000


def test_news_renew_no_lease_of_old_shares_while_the_topic_is_read_again() -> None:
    topic = Topic().started(alice(5.0), share(9.0), NEWS)
    topic.state.begin()
    topic.read(share(1.0), NEWS, now_ms=NOW_MS + 9_000, since_ms=NOW_MS + 8_000)

    topic.state.advance(now_ms=NOW_MS + 10_000)
    assert topic.rates() == {ALICE: 5.0}
    topic.state.end_reached(now_ms=NOW_MS + 10_000)
    assert topic.rates() == {ALICE: 1.0}


def test_a_recreated_topic_has_its_own_news() -> None:
    topic = Topic().started(alice(5.0), share(2.0), NEWS)
    topic.state.begin()
    topic.offset = 0
    topic.read(NEWS, share(3.0), since_ms=None, age_ms=4_000)
    topic.state.end_reached(now_ms=NOW_MS)

    assert (topic.rates(), topic.state.next_ms) == ({ALICE: 3.0}, NOW_MS + 6_000)


def test_an_interrupted_first_reading_keeps_its_rules() -> None:
    topic = Topic()
    topic.state.begin()
    topic.read(alice(5.0), since_ms=None)

    topic.state.begin()

    assert topic.rates() == {ALICE: 5.0}


# -- what is not understood --


def garbage(key: bytes = b'{"user":"alice"}', value: bytes | None = b"garbage") -> RecordFault:
    found = decode(key, value)
    assert isinstance(found, RecordFault)
    return found


def test_garbage_is_counted_logged_once_per_key_and_changes_nothing() -> None:
    topic = Topic().started(alice(5.0), garbage(), garbage(b"\xff"), garbage())

    assert topic.rates() == {ALICE: 5.0}
    assert (topic.state.records, topic.state.not_understood) == (4, 3)
    assert topic.said() == [
        """warning: offset 1 was not understood: value of '{"user":"alice"}': line 1 is not JSON: Expecting value""",
        r"warning: offset 2 was not understood: key of '\\xff': byte 0 is not UTF-8",
    ]


def test_garbage_of_many_keys_is_logged_a_hundred_times() -> None:
    topic = Topic().started(*(garbage(b"%d" % number) for number in range(300)))

    said = topic.said()
    assert len(said) == 100
    assert said[-1].endswith("is not a JSON object; others are only counted from now on")
    assert topic.state.not_understood == 300


def test_a_share_replaced_by_garbage_is_removed() -> None:
    topic = Topic().started(alice(5.0), share(9.0), NEWS)
    assert topic.rates() == {ALICE: 9.0}

    topic.read(garbage(b'{"proxy":"p2","user":"alice"}'), garbage(b'{"news":"balance"}'))
    assert topic.rates() == {ALICE: 9.0}
    topic.read(garbage(b'{"proxy":"p1","user":"alice"}', b'{"producer_byte_rate":1,"expires_ms":7}'))
    assert topic.rates() == {ALICE: 5.0}
    assert topic.state.shares == 0
    topic.read(share(2.0))
    assert topic.rates() == {ALICE: 2.0}


def test_a_share_replaced_by_garbage_stays_removed_when_the_topic_is_read_again() -> None:
    topic = Topic().started(alice(5.0), share(9.0), NEWS)
    topic.state.begin()
    topic.offset = 0
    topic.read(alice(5.0), share(9.0), NEWS, garbage(b'{"proxy":"p1","user":"alice"}'))
    topic.state.end_reached(now_ms=NOW_MS)

    assert topic.rates() == {ALICE: 5.0}


def test_garbage_left_by_compaction_keeps_the_former_rule() -> None:
    topic = Topic().started(alice(5.0), share(2.0), NEWS, garbage(b'{"proxy":"p1","user":"alice"}'), garbage())
    topic.state.begin()
    topic.offset = 2
    topic.read(
        NEWS, garbage(b'{"proxy":"p1","user":"alice"}'), garbage(), garbage(b'{"proxy":"p2","user":"alice"}'),
        garbage(b'{"user":"bob"}'), garbage(b'{"news":"balance"}'), since_ms=NOW_MS,
    )  # fmt: skip
    topic.state.end_reached(now_ms=NOW_MS)

    assert topic.rates() == {ALICE: 5.0}
    assert (topic.state.rules, topic.state.shares) == (1, 0)


def test_garbage_after_a_new_rule_keeps_the_new_rule() -> None:
    topic = Topic().started(alice(5.0), Rule(user="bob", limits=produce(1.0)))
    topic.state.begin()
    topic.read(alice(6.0), garbage(), Rule(user="bob"), garbage(b'{"user":"bob"}'))
    topic.state.end_reached(now_ms=NOW_MS)

    assert topic.rates() == {ALICE: 6.0}


def test_the_number_of_entities_is_bounded() -> None:
    topic = Topic(TopicRules(proxy="p1", topic="store", most=3))

    topic.started(*(Rule(user=f"u{number}", limits=produce(1.0)) for number in range(5)))
    topic.read(Rule(user="u0", limits=produce(2.0)), Rule(user="u1"), Rule(user="u9", limits=produce(3.0)))

    assert topic.rates() == {("u0", None): 2.0, ("u2", None): 1.0, ("u9", None): 3.0}
    assert topic.said() == [
        "warning: has more than 3 entities: further ones are ignored, from offset 3 on",
    ]
    assert topic.state.not_understood == 2


def test_tombstones_do_not_count_as_entities() -> None:
    topic = Topic(TopicRules(proxy="p1", topic="store", most=3)).started(Rule(user="u0", limits=produce(1.0)))
    topic.state.begin()
    topic.read(*(Rule(user=f"u{number}") for number in range(5)))
    topic.read(*(Share(proxy="p1", user=f"u{number}") for number in range(5)))
    topic.read(*(Rule(user=f"u{number}", limits=produce(2.0)) for number in (7, 8, 9)), garbage(b'{"user":"u0"}'))
    topic.state.end_reached(now_ms=NOW_MS)

    assert topic.rates() == {("u7", None): 2.0, ("u8", None): 2.0, ("u9", None): 2.0}
    assert not any("passed over" in text for text in topic.said())


# -- compared with an oracle --


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
    st.builds(
        lambda proxy, user, limits: Share(proxy=proxy, user=user, limits=limits),
        st.sampled_from(["p1", "p2"]), USERS, RATES,
    ),
    st.builds(News, published_ms=st.just(1), lease_ms=st.sampled_from([500, 2_000])),
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
    heard_ms: dict[int, int] = field(default_factory=dict)  # by index of each news: when its lease began
    file: set[str] = field(default_factory=set)

    def expected(self, now_ms: int) -> dict[Entity, Mapping[str, float]]:
        known = self.log[: self.read]
        news = [index for index, record in enumerate(known) if isinstance(record, News)]
        last = known[news[-1]] if news else None
        has_lease = isinstance(last, News) and now_ms < self.heard_ms[news[-1]] + last.lease_ms
        rules = settings_of(known)
        rules |= {user: limits for user, limits in rules_of(known).items() if limits}
        shares = dict(given for given in map(of_share, known) if given) if has_lease else {}
        limits = {user: {**rules.get(user, {}), **shares.get(user, {})} for user in {*rules, *shares}}
        return {(user, None): of_user for user, of_user in limits.items() if of_user and user not in self.file}


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


def of_share(record: QuotaRecord | RecordFault) -> tuple[EntityName, Mapping[str, float]] | None:
    """Return the user and the limits of a share of proxy p1, or None for another record. A share may have no limits."""
    about = record.about if isinstance(record, RecordFault) else record
    return (about.user, about.limits) if isinstance(about, Share) and about.proxy == "p1" else None


def compacted(records: Iterable[tuple[int, QuotaRecord | RecordFault]]) -> list[tuple[int, QuotaRecord | RecordFault]]:
    """Return what compaction leaves: the last record of each key, without tombstones."""
    last: dict[object, tuple[int, QuotaRecord | RecordFault]] = {}
    for offset, record in records:
        about = record.about if isinstance(record, RecordFault) else record
        key = (type(about), getattr(about, "proxy", None), getattr(about, "user", None), getattr(about, "key", None))
        last.pop(key, None)
        last[key] = (offset, record)
    return [one for one in last.values() if isinstance(one[1], News | RecordFault) or says_something(one[1])]


def says_something(record: Rule | Setting | Share) -> bool:
    return record.value is not None if isinstance(record, Setting) else bool(record.limits)


class Run:
    """Runs ``TopicRules`` on the oracle's records. ``told`` has the rules that result from the reported changes."""

    def __init__(self) -> None:
        self.state, self.oracle = TopicRules(proxy="p1", topic="store"), Oracle()
        self.state.begin()
        self.state.end_reached(now_ms=0)
        self.told: dict[Entity, QuotaRule] = {}
        self.now_ms = self.since_ms = 0

    def write(self, record: QuotaRecord | RecordFault) -> None:
        self.oracle.log.append(record)

    def wait(self, time_ms: int) -> None:
        self.now_ms += time_ms
        self.state.advance(now_ms=self.now_ms)

    def take_file(self, users: set[str]) -> None:
        self.oracle.file = users
        self.state.follow_file([QuotaRule(user=user) for user in users])
        self.told = {entity: rule for entity, rule in self.told.items() if entity[0] not in users}

    def fetch(self, *, is_second: bool = False, is_compacted: bool = False) -> None:
        records = list(enumerate(self.oracle.log))
        known, new = records[: self.oracle.read], records[self.oracle.read :]
        self.oracle.read = len(records)
        self.oracle.heard_ms |= {offset: self.since_ms for offset, record in new if isinstance(record, News)}
        if is_second:
            self.state.begin()
            new = (compacted(known) if is_compacted else known) + new
        seen = [TopicRecord(offset, 0, record) for offset, record in new]
        self.state.take(seen, since_ms=self.since_ms, now_ms=self.now_ms, wall_ms=0)
        if is_second:
            self.state.end_reached(now_ms=self.now_ms)
        self.since_ms = self.now_ms

    def settle(self, portion: int) -> None:
        while self.state.is_unsettled:
            for entity, rule in self.state.changes(portion).items():
                if rule is None:
                    del self.told[entity]
                else:
                    self.told[entity] = rule


@settings(max_examples=300)
@given(
    st.lists(
        st.one_of(
            st.builds(lambda record: lambda run: run.write(record), WRITTEN),
            st.builds(lambda time_ms: lambda run: run.wait(time_ms), st.integers(0, 1_500)),
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

        assert {entity: limits_of(rule) for entity, rule in run.told.items()} == run.oracle.expected(run.now_ms)
        assert run.told == run.state.in_force


def limits_of(rule: QuotaRule) -> dict[str, float]:
    rates = {
        "producer_byte_rate": rule.limits.get("producer_byte_rate"),
        "consumer_byte_rate": rule.limits.get("consumer_byte_rate"),
    }
    return {key: rate for key, rate in rates.items() if rate is not None}


@given(
    publications=st.lists(st.integers(100, 4_000), max_size=20),
    delays=st.lists(st.integers(0, 20_000), min_size=20, max_size=20),
    lease_ms=st.integers(1_000, 10_000),
)
def test_no_share_holds_longer_than_its_lease_after_it_was_published(
    publications: list[int], delays: list[int], lease_ms: int
) -> None:
    """After the lease, the publisher gives the rest of a lowered share to others."""
    state = TopicRules(proxy="p1", topic="store")
    state.begin()
    state.end_reached(now_ms=0)
    sent_ms, now_ms, read, clock = 0, 0, 0, 0
    written = []
    for gap in publications:
        clock += gap
        written.append(clock)
    for delay_ms in delays:
        # The broker answers a fetch at once with all records, but the answer arrives ``delay_ms`` later.
        there = sum(at_ms <= now_ms for at_ms in written)
        answered_ms = now_ms + delay_ms
        seen = [TopicRecord(index, 0, News(published_ms=1, lease_ms=lease_ms)) for index in range(read, there)]
        state.take(seen, since_ms=sent_ms, now_ms=answered_ms, wall_ms=0)
        read, sent_ms, now_ms = there, now_ms, answered_ms

        if state.has_lease:
            assert read
            assert state.next_ms is not None
            assert state.next_ms <= written[read - 1] + lease_ms


def test_notices_are_returned_once() -> None:
    topic = Topic().started(NEWS)

    assert list(topic.state.notices) == [
        Notice(is_warning=False, text="the topic has news: 0 shares of this proxy applied"),
    ]
    assert list(topic.state.notices) == []
