"""Tests of ``config.rule_reach_checks``."""

from kafka_quota_proxy.config.model import DEFAULT, ProxyConfig, QuotaRule
from kafka_quota_proxy.config.quota_kinds import CLIENT_LIMIT_KEYS
from tests.config import test_load
from tests.config.test_load import LISTENERS, loaded, warnings
from tests.support.cases import each_case


def with_rules(*rules: str) -> str:
    return f"{LISTENERS}quotas:\n" + "".join(f"  - {rule}\n" for rule in rules)


def config(*rules: str) -> ProxyConfig:
    found = loaded(with_rules(*rules))
    assert found.warnings == ()
    return found.config


def faults(*rules: str) -> list[str]:
    return test_load.faults(with_rules(*rules))


def test_a_rule_of_clients_has_limits_of_all_kinds() -> None:
    (rule,) = config(
        "{user: <default>, client-id: etl, producer_byte_rate: 1MB, consumer_byte_rate: 2MB, "
        "request_percentage: 250.5, request_rate: 0.1, controller_mutation_rate: '10', connections: 3}"
    ).quotas

    assert rule == QuotaRule(
        user=DEFAULT,
        client_id="etl",
        producer_byte_rate=1_000_000.0,
        consumer_byte_rate=2_000_000.0,
        request_percentage=250.5,
        request_rate=0.1,
        controller_mutation_rate=10.0,
        connections=3,
        source="f.yaml:3",
    )


def test_a_rate_of_0_for_an_address_is_accepted() -> None:
    """Kafka's ``ConnectionQuotasTest`` uses a rate of 0 to refuse an address (V55)."""
    (rule,) = config("{ip: 10.0.0.7, connection_creation_rate: 0}").ip_quotas

    assert rule.connection_creation_rate == 0.0


def test_an_address_and_all_others_have_a_rate_each() -> None:
    """The rates are those of Kafka's ``testAlterIpQuotasRequest`` (V54)."""
    rules = config(
        "{ip: 1.2.3.4, connection_creation_rate: 150}", "{ip: <default>, connection_creation_rate: 200}"
    ).ip_quotas

    assert {rule.ip: rule.connection_creation_rate for rule in rules} == {"1.2.3.4": 150.0, DEFAULT: 200.0}


@each_case(
    "rule, fault",
    [
        ("{ip: 10.0.0.7}", "quotas[0]: limits nothing; give connection_creation_rate"),
        ("{ip: 10.0.0.0/8, connection_creation_rate: 1}", "quotas[0].ip: '10.0.0.0/8' is a network; write one"),
        (
            "{ip: broker1, connection_creation_rate: 1}",
            "quotas[0].ip: 'broker1' is not an IP address; write one such as",
        ),
        ("{ip: '', connection_creation_rate: 1}", "quotas[0].ip: must not be empty"),
        ("{ip: 10, connection_creation_rate: 1}", "quotas[0].ip: must be an IP address such as 10.0.0.7"),
        ("{ip: null, connection_creation_rate: 1}", "quotas[0].ip: has no value"),
        ("{ip: 10.0.0.7, connection_creation_rate: -1}", "a connection rate cannot be negative"),
        ("{ip: 10.0.0.7, connection_creation_rate: }", "connection_creation_rate: has no value; write connections"),
        ("{connection_creation_rate: 1}", "connection_creation_rate: is a limit of addresses; write a rule {ip: 10"),
        (
            "{user: a, producer_byte_rate: 1MB, connection_creation_rate: 1}",
            "quotas[0].connection_creation_rate: is a limit of addresses",
        ),
        (
            "{ip: 10.0.0.7, user: a, connection_creation_rate: 1}",
            "quotas[0].user: cannot be given with ip, whose rule has",
        ),
        ("{ip: 10.0.0.7, client-id: a, connection_creation_rate: 1}", "quotas[0].client-id: cannot be given with ip"),
        ("{ip: 10.0.0.7, shaping: paced, connection_creation_rate: 1}", "quotas[0].shaping: cannot be given with ip"),
        ("{ip: 10.0.0.7, enforcement: observe, connection_creation_rate: 1}", "enforcement: cannot be given with ip"),
        *(
            (f"{{ip: 10.0.0.7, {key}: 1000, connection_creation_rate: 1}}", f"quotas[0].{key}: cannot be given with ip")
            for key in CLIENT_LIMIT_KEYS
        ),
    ],
)
def test_a_faulty_rule_of_an_address_is_refused(rule: str, fault: str) -> None:
    (found,) = faults(rule)

    assert found.startswith("f.yaml:3: ")
    assert fault in found


def test_two_rules_for_one_address_name_both_lines_however_it_is_written() -> None:
    assert faults(
        "{ip: '::1', connection_creation_rate: 1}",
        "{ip: <default>, connection_creation_rate: 1}",
        "{ip: '0:0::1', connection_creation_rate: 2}",
        "{ip: <default>, connection_creation_rate: 2}",
    ) == [
        "f.yaml:5: quotas[2]: ip ::1 has a rule in line 3 already; put all limits of it into one rule",
        "f.yaml:6: quotas[3]: ip <default> has a rule in line 4 already; put all limits of it into one rule",
    ]


def test_two_rules_of_a_client_with_different_limits_are_refused() -> None:
    assert faults("{user: a, connections: 1}", "{user: a, request_rate: 1}") == [
        "f.yaml:4: quotas[1]: user a has a rule in line 3 already; put all limits of it into one rule"
    ]


def test_a_rule_without_limits_is_refused_with_the_keys_it_may_have() -> None:
    (fault,) = faults("{client-id: x}")

    assert fault == (
        "f.yaml:3: quotas[0]: limits nothing; give producer_byte_rate, consumer_byte_rate, request_percentage, "
        "request_rate, controller_mutation_rate or connections"
    )


def test_the_checks_ignore_a_rule_that_is_no_mapping() -> None:
    assert len(faults("just text", "{ip: [1], connection_creation_rate: 1}")) == 2


@each_case("key", ["user", "client-id"])
def test_a_name_longer_than_kafkas_protocol_allows_is_refused(key: str) -> None:
    longest = "ü" * 16_383 + "x"
    assert len(config(f"{{{key}: {longest}, connections: 3}}").quotas) == 1

    (fault,) = faults(f"{{{key}: {longest}y, connections: 3}}")

    assert fault.startswith("f.yaml:3")
    assert "has 32768 bytes; names have at most 32767 in Kafka's protocol" in fault


CATCHES_NAMELESS = "{user: <default>, producer_byte_rate: 1MB}"


def of_rules(*rules: str, more: str = "") -> list[str]:
    lines = "".join(f"  - {rule}\n" for rule in rules)
    return warnings(f"{LISTENERS}quotas:\n{lines}{more}")


def keys(found: list[str]) -> list[str]:
    return [": ".join(line.split(": ")[:2]) for line in found]


def of_principals(principals: str) -> list[str]:
    return warnings(f"{LISTENERS}principals: {{{principals}}}\n")


@each_case(
    "name, right",
    [
        ("'User:alice'", "write it without the type that Kafka writes before a principal"),
        ("'user: alice'", "write it without the type that Kafka writes before a principal"),
        ("'*'", "write <default>"),
        ("'etl-*'", "write <default>"),
        ("default", "write <default>"),
        ("<DEFAULT>", "write <default>"),
        ("'[default]'", "write <default>"),
        ("--entity-default", "write <default>"),
    ],
)
def test_user_name_that_no_client_has_is_a_warning(name: str, right: str) -> None:
    (found,) = of_rules(f"{{user: {name}, producer_byte_rate: 1MB}}")

    assert found.startswith("f.yaml:3: quotas[0].user: warning: ")
    assert found.endswith(right)


@each_case("name", ["'*'", "default", "<DEFAULT>", "'team-*'"])
def test_client_id_that_no_client_has_is_a_warning(name: str) -> None:
    (found,) = of_rules(f"{{client-id: {name}, producer_byte_rate: 1MB}}")

    assert found.startswith("f.yaml:3: quotas[0].client-id: warning: ")


@each_case(
    "rule",
    [
        "{user: alice, producer_byte_rate: 1MB}",
        "{user: ANONYMOUS, producer_byte_rate: 1MB}",
        "{user: default-user, producer_byte_rate: 1MB}",
        "{client-id: 'User:alice', producer_byte_rate: 1MB}",
        CATCHES_NAMELESS,
    ],
)
def test_name_that_a_client_may_have_is_no_warning(rule: str) -> None:
    assert of_rules(rule) == []


@each_case("key", ["exempt", "brokers", "admins"])
@each_case("name", ["'User:admin'", "'*'", "default"])
def test_name_of_no_user_among_principals_is_a_warning(key: str, name: str) -> None:
    (found,) = of_principals(f"{key}: [root, {name}]")

    assert found.startswith(f"f.yaml:2: principals.{key}[1]: warning: ")


# -- users that are exempt, or charged under another name --


@each_case("rule", ["{user: admin, producer_byte_rate: 1MB}", "{user: admin, client-id: x, connections: 3}"])
def test_rule_for_an_exempt_user_is_a_warning(rule: str) -> None:
    found = of_rules(rule, "{user: alice, producer_byte_rate: 1MB}", more="principals: {exempt: [root, admin]}\n")

    assert found == [
        "f.yaml:3: quotas[0].user: warning: never applies: line 5 exempts admin from all quotas; remove one of the two"
    ]


FOLD = "principals: {fold: [{match: '^app-([a-z]+)-[0-9a-f]+$', to: 'app-\\1'}]}\n"


def test_rule_for_a_folded_user_is_a_warning() -> None:
    found = of_rules(
        "{user: app-etl-12ab, producer_byte_rate: 1MB}", "{user: app-etl, producer_byte_rate: 1MB}", more=FOLD
    )

    assert found == [
        "f.yaml:3: quotas[0].user: warning: never applies to app-etl-12ab, whom the fold in line 5 charges as "
        "app-etl; write it for app-etl"
    ]


def test_the_first_fold_that_matches_counts() -> None:
    folds = "principals: {fold: [{match: 'etl', to: etl}, {match: '(.*)', to: 'team-\\1'}]}\n"

    assert of_rules("{user: etl, producer_byte_rate: 1MB}", more=folds) == []
    assert len(of_rules("{user: alice, producer_byte_rate: 1MB}", more=folds)) == 1


# -- rules behind others --


@each_case("key", CLIENT_LIMIT_KEYS)
def test_rule_for_a_client_id_alone_behind_one_for_all_users_is_a_warning(key: str) -> None:
    found = of_rules(f"{{client-id: etl, {key}: 2000}}", f"{{user: <default>, {key}: 1000}}")

    assert found == [
        f"f.yaml:3: quotas[0].{key}: warning: never wins: the rule for {{user: <default>}} in line 4 has a {key} too, "
        "and a rule for users comes before one for a client-id alone; add user: <default> to this rule, or remove it"
    ]


def test_rules_for_client_ids_alone_behind_one_for_all_pairs_are_warnings() -> None:
    found = of_rules(
        "{client-id: etl, producer_byte_rate: 2MB}",
        "{client-id: <default>, producer_byte_rate: 2MB}",
        "{user: <default>, client-id: <default>, producer_byte_rate: 1MB}",
        "{user: alice, client-id: etl, producer_byte_rate: 1MB}",
    )

    assert keys(found) == [
        "f.yaml:3: quotas[0].producer_byte_rate",
        "f.yaml:4: quotas[1].producer_byte_rate",
        "f.yaml:4: quotas[1].client-id",
        "f.yaml:5: quotas[2].client-id",
    ]


def test_rule_of_another_kind_hides_nothing() -> None:
    assert (
        of_rules("{client-id: etl, consumer_byte_rate: 2MB}", CATCHES_NAMELESS, "{user: alice, connections: 5}") == []
    )


@each_case("times", ["expires: 2099-01-01T00:00:00Z", "schedule: {hours: 08:00-18:00, time_zone: UTC}"])
def test_a_scheduled_rule_hides_no_other(times: str) -> None:
    assert of_rules("{client-id: etl, request_rate: 20}", f"{{user: <default>, request_rate: 10, {times}}}") == []


# -- clients without a client-id --


def test_clients_without_a_client_id_that_have_no_limit_are_a_warning() -> None:
    found = of_rules("{client-id: etl, producer_byte_rate: 2MB}", "{client-id: <default>, producer_byte_rate: 1MB}")

    assert found == [
        "f.yaml:4: quotas[1].client-id: warning: clients without a client-id have no limit (producer_byte_rate): Kafka "
        "looks up no client-id for them; add a rule {user: <default>} with that limit"
    ]


@each_case("user", ["<default>", "alice"])
def test_clients_without_a_client_id_are_a_warning_if_only_pairs_have_limits(user: str) -> None:
    (found,) = of_rules(f"{{user: {user}, client-id: <default>, producer_byte_rate: 1MB}}")

    assert found.startswith("f.yaml:3: quotas[0].client-id: warning: clients without a client-id have no limit (prod")
    assert found.endswith(f"; add a rule {{user: {user}}} with that limit")


@each_case(
    "rules",
    [
        ("{user: <default>, client-id: <default>, producer_byte_rate: 1MB}", CATCHES_NAMELESS),
        ("{user: alice, client-id: <default>, producer_byte_rate: 1MB}", CATCHES_NAMELESS),
        ("{user: alice, client-id: <default>, producer_byte_rate: 1MB}", "{user: alice, producer_byte_rate: 1MB}"),
        ("{client-id: etl, producer_byte_rate: 1MB}",),
        ("{user: alice, client-id: etl, producer_byte_rate: 1MB}",),
    ],
)
def test_clients_without_a_client_id_are_no_warning_if_they_or_no_clients_have_limits(
    rules: tuple[str, ...],
) -> None:
    assert of_rules(*rules) == []


@each_case(
    "more",
    [
        "quotas_from: broker\n",
        "quotas_from: {kafka: {bootstrap_servers: 'k1:9092', topic: store}}\n",
        "principals: {admins: [admin]}\nstore: {directory: d}\n",
    ],
)
def test_rules_elsewhere_may_be_for_clients_without_a_client_id(more: str) -> None:
    assert of_rules("{client-id: <default>, producer_byte_rate: 1MB}", more=more) == []
