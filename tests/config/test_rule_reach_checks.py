"""Tests warnings about rules that apply to no client, and about clients to which no rule applies."""

from kafka_quota_proxy.config.quota_kinds import CLIENT_LIMIT_KEYS
from tests.config.test_load import LISTENERS, warnings
from tests.support.cases import each_case

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
        ("'User:alice'", "write alice"),
        ("'user: alice'", "write alice"),
        ("'User:*'", "write <default>"),
        ("'*'", "write <default>"),
        ("'etl-*'", "write <default>"),
        ("default", "write <default>"),
        ("<DEFAULT>", "write <default>"),
        ("'<Default>'", "write <default>"),
        ("'[default]'", "write <default>"),
        ("--entity-default", "write <default>"),
        ("'alice '", "write alice"),
        ("' alice'", "write alice"),
        ("'<default> '", "write <default>"),
        ('"alice\\t"', "write alice"),
        ("<shared>", "<default>"),
        ("anonymous", "write ANONYMOUS"),
        ("Unknown", "write UNKNOWN"),
        ("CN%3Dalice%2COU%3Detl", "write 'CN=alice,OU=etl'"),
    ],
)
def test_user_name_that_no_client_has_is_a_warning(name: str, right: str) -> None:
    (found,) = of_rules(f"{{user: {name}, producer_byte_rate: 1MB}}")

    assert found.startswith("f.yaml:3: quotas[0].user: warning: ")
    assert found.endswith(right)


@each_case("name", ["'*'", "default", "<DEFAULT>", "'etl '", "'team-*'", "<shared>"])
def test_client_id_that_no_client_has_is_a_warning(name: str) -> None:
    (found,) = of_rules(f"{{client-id: {name}, producer_byte_rate: 1MB}}")

    assert found.startswith("f.yaml:3: quotas[0].client-id: warning: ")


@each_case(
    "rule",
    [
        "{user: alice, producer_byte_rate: 1MB}",
        "{user: ANONYMOUS, producer_byte_rate: 1MB}",
        "{user: UNKNOWN, producer_byte_rate: 1MB}",
        "{user: 'CN=alice, OU=100% etl', producer_byte_rate: 1MB}",
        "{user: default-user, producer_byte_rate: 1MB}",
        "{client-id: 'User:alice', producer_byte_rate: 1MB}",
        "{client-id: anonymous, producer_byte_rate: 1MB}",
        "{client-id: 'my app', producer_byte_rate: 1MB}",
        "{client-id: 'a%20b', producer_byte_rate: 1MB}",
        CATCHES_NAMELESS,
    ],
)
def test_name_that_a_client_may_have_is_no_warning(rule: str) -> None:
    assert of_rules(rule) == []


@each_case("key", ["exempt", "brokers", "admins"])
@each_case("name", ["'User:admin'", "'*'", "default", "'admin '", "anonymous"])
def test_name_of_no_user_among_principals_is_a_warning(key: str, name: str) -> None:
    (found,) = of_principals(f"{key}: [root, {name}]")

    assert found.startswith(f"f.yaml:2: principals.{key}[1]: warning: ")


def test_fold_of_names_with_kafkas_type_is_a_warning() -> None:
    (found,) = of_principals("fold: [{match: '^User:app-(.*)$', to: app}]")

    assert found.startswith("f.yaml:2: principals.fold[0].match: warning: matches no user")


@each_case("ip", ["0.0.0.0", "'::'", "224.0.0.1"])  # noqa: S104
def test_address_that_no_client_has_is_a_warning(ip: str) -> None:
    (found,) = of_rules(f"{{ip: {ip}, connection_creation_rate: 5}}")

    assert found.startswith("f.yaml:3: quotas[0].ip: warning: no client has the address ")


@each_case("rule", ["{ip: 10.0.0.7, connection_creation_rate: 5}", "{ip: <default>, connection_creation_rate: 5}"])
def test_address_of_clients_is_no_warning(rule: str) -> None:
    assert of_rules(rule) == []


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
        "f.yaml:3: quotas[0].user: warning: never applies: the fold in line 5 charges app-etl-12ab as app-etl; "
        "write it for app-etl"
    ]


def test_rule_for_the_target_of_a_fold_is_no_warning() -> None:
    """The rule for team-etl applies to etl, which is charged as team-etl."""
    folds = "principals: {fold: [{match: '^(.*)$', to: 'team-\\1'}]}\n"

    assert of_rules("{user: team-etl, producer_byte_rate: 1MB}", more=folds) == []
    assert len(of_rules("{user: etl, producer_byte_rate: 1MB}", more=folds)) == 1


@each_case(
    "match, to, user, is_reached",
    [
        ("(?P<team>[a-z]+)-.*", "\\g<team>", "etl", True),
        ("(?P<team>[a-z]+)-.*", "\\g<team>", "etl-1", False),
        ("(?:app|job)-([a-z(]+)[)]\\(.*", "\\1", "etl", True),
        ("(?:app|job)-([a-z(]+)[)]\\(.*", "\\1", "app-x)(", False),
        ("((a)|b)c(?i:d)?.*", "\\2-\\1", "-b", True),
        ("((a)|b)c(?i:d)?.*", "\\2-\\1", "bc", False),
        ("x(.)(.*)", "y\\2\\1", "xab", False),
        ("x.*", "xyz", "xyz", True),
        ("x(.)", "\\\\1\\1", "xa", False),
    ],
)
def test_rule_for_a_folded_name_is_a_warning_only_where_the_fold_makes_no_such_name(
    match: str, to: str, user: str, is_reached: bool
) -> None:
    folds = f"principals: {{fold: [{{match: '{match}', to: '{to}'}}]}}\n"

    assert (of_rules(f"{{user: '{user}', producer_byte_rate: 1MB}}", more=folds) == []) is is_reached


# -- rules behind others --


@each_case("key", CLIENT_LIMIT_KEYS)
def test_rule_for_a_client_id_alone_behind_one_for_all_users_is_a_warning(key: str) -> None:
    found = of_rules(f"{{client-id: etl, {key}: 2000}}", f"{{user: <default>, {key}: 1000}}")

    assert found == [
        f"f.yaml:3: quotas[0].{key}: warning: never wins: {{user: <default>}} in line 4 has a {key} too, and a rule "
        "for users comes before one for a client-id alone; write it for {user: <default>, client-id: etl}"
    ]


def test_rule_for_all_client_ids_behind_one_for_all_users_is_a_warning() -> None:
    (found,) = of_rules(CATCHES_NAMELESS, "{client-id: <default>, producer_byte_rate: 1MB}")

    assert found.startswith("f.yaml:4: quotas[1].producer_byte_rate: warning: never wins: {user: <default>} in line 3")


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
    assert found[0].endswith("write it for {user: <default>, client-id: etl}")
    assert found[1].endswith("remove this")


def test_static_default_behind_a_rule_for_all_users_is_a_warning() -> None:
    (found,) = of_rules(
        CATCHES_NAMELESS, more="kafka: {quota.producer.default: 5MB, quota.consumer.default: 9223372036854775807}\n"
    )

    assert found.startswith("f.yaml:4: kafka.quota.producer.default: warning: never wins: {user: <default>} in line 3")


def test_rule_of_another_kind_hides_nothing() -> None:
    assert (
        of_rules("{client-id: etl, consumer_byte_rate: 2MB}", CATCHES_NAMELESS, "{user: alice, connections: 5}") == []
    )


@each_case("times", ["expires: 2099-01-01T00:00:00Z", "schedule: {hours: 08:00-18:00, time_zone: UTC}"])
def test_a_scheduled_rule_hides_no_other(times: str) -> None:
    assert of_rules("{client-id: etl, request_rate: 20}", f"{{user: <default>, request_rate: 10, {times}}}") == []


def test_limit_of_a_user_above_that_of_each_client_id_is_a_warning() -> None:
    """The limit of alice applies only to her clients without a client-id, and not to the sum of all her clients."""
    found = of_rules(
        "{user: alice, client-id: <default>, producer_byte_rate: 1MB, consumer_byte_rate: 1MB}",
        "{user: alice, producer_byte_rate: 5MB, consumer_byte_rate: 1MB}",
        "{user: <default>, client-id: <default>, producer_byte_rate: 1MB}",
        "{user: <default>, producer_byte_rate: 1MiB}",
    )

    assert keys(found) == ["f.yaml:4: quotas[1].producer_byte_rate", "f.yaml:6: quotas[3].producer_byte_rate"]
    assert "applies only to clients without a client-id: {user: alice, client-id: <default>} in line 3" in found[0]


# -- clients without a client-id --


def test_clients_without_a_client_id_that_have_no_limit_are_a_warning() -> None:
    found = of_rules("{client-id: etl, producer_byte_rate: 2MB}", "{client-id: <default>, producer_byte_rate: 1MB}")

    assert found == [
        "f.yaml:4: quotas[1].client-id: warning: clients without a client-id have no limit (producer_byte_rate): Kafka "
        "looks up no client-id for them; add a rule {user: <default>, producer_byte_rate: …}, and write rules for a "
        "client-id alone for {user: <default>, client-id: …}, since it hides them"
    ]


@each_case(
    "rule, missing",
    [
        (
            "{user: <default>, client-id: <default>, producer_byte_rate: 1MB}",
            "{user: <default>, producer_byte_rate: …}",
        ),
        ("{user: alice, client-id: <default>, producer_byte_rate: 1MB}", "{user: alice, producer_byte_rate: …}"),
    ],
)
def test_clients_without_a_client_id_are_a_warning_if_only_pairs_have_limits(rule: str, missing: str) -> None:
    (found,) = of_rules(rule)

    assert found.startswith("f.yaml:3: quotas[0].client-id: warning: clients ")
    assert "without a client-id have no limit (producer_byte_rate)" in found
    assert found.endswith(f"; add a rule {missing}")


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
        "quotas_from: kafka://k1:9092/store\n",
        "principals: {admins: [admin]}\nstore: {directory: d}\n",
    ],
)
def test_rules_elsewhere_may_be_for_clients_without_a_client_id(more: str) -> None:
    assert of_rules("{client-id: <default>, producer_byte_rate: 1MB}", more=more) == []
