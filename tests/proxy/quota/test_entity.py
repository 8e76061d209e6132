"""Tests which bucket is charged, which limit applies, and the names of both.

tests/oracles compares all sets of rules with Kafka.
"""

import re
from itertools import product
from urllib.parse import unquote

from hypothesis import given
from hypothesis import strategies as st

from kafka_quota_proxy.config.model import DEFAULT, EntityName, QuotaRule
from kafka_quota_proxy.config.quota_kinds import BUCKET_KINDS, QuotaKind
from kafka_quota_proxy.proxy.quota.entity import LEVELS, Entity, Tags
from kafka_quota_proxy.proxy.quota.rule_tables import MAX_NAME_LENGTH, RuleTable, bounded
from kafka_quota_proxy.proxy.quota.sanitize import sanitize

# In the order of precedence.
EIGHT: tuple[Entity, ...] = tuple(
    (user, client_id)
    for user, client_id in product(("alice", DEFAULT, None), ("etl", DEFAULT, None))
    if user or client_id
)
MANY: tuple[Entity, ...] = tuple(
    (user, client_id)
    for user, client_id in product(("alice", "bob", DEFAULT, None), ("etl", "web", DEFAULT, None))
    if user or client_id
)
# The users carol and other have no rules of their own. A null client-id counts as "".
CONNECTIONS = tuple(product(("alice", "bob", "carol"), ("etl", "web", "other", "")))


def rule(user: EntityName = None, client_id: EntityName = None, limit: float = 1_000.0) -> QuotaRule:
    return QuotaRule(user=user, client_id=client_id, producer_byte_rate=limit)


def table_of(*rules: QuotaRule) -> RuleTable:
    return RuleTable(QuotaKind.PRODUCE, rules)


def test_a_user_named_default_is_not_the_default_user() -> None:
    table = table_of(rule(DEFAULT, None, 6.0), rule("<default>", None, 3.0))

    assert table.resolve(user="<default>", client_id="etl").limit == 3.0
    assert table.resolve(user="alice", client_id="etl").limit == 6.0


def test_labels_of_kinds() -> None:
    assert [kind.label for kind in BUCKET_KINDS] == ["produce", "fetch", "request", "request_rate", "mutation"]


def test_a_level_names_its_entity() -> None:
    for number in range(1, 9):
        level = LEVELS[number - 1]
        entity = level.entity("alice", "etl")

        assert level.number == number, number
        assert entity == EIGHT[number - 1], number
        assert [part for part in entity if isinstance(part, str)] == [
            name for name, part in (("alice", level.user), ("etl", level.client_id)) if part
        ], number


@given(entities=st.sets(st.sampled_from(EIGHT)), connection=st.sampled_from(CONNECTIONS))
def test_an_explanation_shows_all_eight_levels_and_one_winner_at_most(
    entities: set[Entity], connection: tuple[str, str]
) -> None:
    table = table_of(*(rule(*entity) for entity in entities))
    user, client_id = connection
    resolution = table.resolve(user=user, client_id=client_id)

    candidates = table.explain(user=user, client_id=client_id)

    assert tuple(candidate.level for candidate in candidates) == LEVELS
    assert [candidate.rule for candidate in candidates if candidate.wins] == [r for r in (resolution.rule,) if r]
    for candidate in candidates:
        assert (candidate.rule is None) == (candidate.level.entity(user, client_id) not in entities)


def test_an_explanation_gives_the_reason_of_each_loss() -> None:
    table = table_of(rule("alice", None), rule(DEFAULT, DEFAULT), rule(None, "etl"))

    reasons = [candidate.reason for candidate in table.explain(user="alice", client_id="etl")]

    nothing = "no rule has this level"
    more_specific = "level 3 (user) is more specific"
    assert reasons == [
        nothing,
        nothing,
        "the most specific rule that applies",
        nothing,
        more_specific,
        nothing,
        more_specific,
        nothing,
    ]


def test_an_explanation_says_that_an_empty_client_id_is_not_looked_up() -> None:
    candidate = table_of(rule(None, DEFAULT)).explain(user="alice", client_id="")[7]

    assert not candidate.wins
    assert candidate.reason == "the client-id is empty, and Kafka looks up no client-id rule for an empty one"


@given(entities=st.sets(st.sampled_from(MANY)), connection=st.sampled_from(CONNECTIONS))
def test_explanation_mentions_only_an_empty_client_id(entities: set[Entity], connection: tuple[str, str]) -> None:
    user, client_id = connection

    candidates = table_of(*(rule(*entity) for entity in entities)).explain(user=user, client_id=client_id)

    assert client_id == "" or all("empty" not in candidate.reason for candidate in candidates)


def test_rule_names_one_bucket_unless_it_has_a_default() -> None:
    table = table_of(rule("alice", "etl"), rule("bob"), rule(None, "web"), rule(DEFAULT, "x"), rule("carol", DEFAULT))

    for tags, is_named in [
        (Tags("alice", "etl"), True),
        (Tags("bob", ""), True),
        (Tags("", "web"), True),
        (Tags("alice", ""), False),
        (Tags("", "etl"), False),
        (Tags("carol", "x"), False),
        (Tags("", ""), False),
        (Tags("<default>", "x"), False),
    ]:
        table = table_of(
            rule("alice", "etl"), rule("bob"), rule(None, "web"), rule(DEFAULT, "x"), rule("carol", DEFAULT)
        )

        assert table.names(tags) is is_named, (tags, is_named)


def test_short_name_is_unchanged() -> None:
    assert bounded("x" * MAX_NAME_LENGTH) == "x" * MAX_NAME_LENGTH
    assert bounded("") == ""


LONG_NAMES = st.tuples(st.text(min_size=1, max_size=9), st.integers(MAX_NAME_LENGTH + 1, 400)).map(
    lambda drawn: drawn[0] * drawn[1]
)


@given(LONG_NAMES, LONG_NAMES)
def test_long_names_are_shortened_to_different_ones(one: str, other: str) -> None:
    assert len(bounded(one)) < MAX_NAME_LENGTH
    assert bounded(one) == bounded(bounded(one))
    assert (bounded(one) == bounded(other)) is (one == other)


def test_names_are_escaped_as_in_kafka() -> None:
    for name, sanitized in [
        (
            "CN=Some characters !@#$%&*()_-+=';:,/~",
            "CN%3DSome%20characters%20%21%40%23%24%25%26%2A%28%29_-%2B%3D%27%3B%3A%2C%2F%7E",
        ),
        ("<default>", "%3Cdefault%3E"),
        ("Üser", "%C3%9Cser"),
        ("a.b-c_d", "a.b-c_d"),
        ("", ""),
    ]:
        assert sanitize(name) == sanitized, (name, sanitized)


@given(st.text())
def test_any_escaped_name_is_plain_and_decodes_back(name: str) -> None:
    assert re.fullmatch(r"[A-Za-z0-9._%-]*", sanitize(name))
    assert unquote(sanitize(name), errors="surrogatepass") == name
