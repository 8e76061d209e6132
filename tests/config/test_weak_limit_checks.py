"""Tests warnings about keys that leave limits without effect."""

from tests.config.test_load import LISTENERS, faults, loaded, warnings
from tests.support.cases import each_case


def of_listener(bind: str, more: str) -> list[str]:
    return warnings(f"listeners:\n  - name: a\n    bind: '{bind}'\n    upstream: b:2\n    {more}\n")


@each_case("bind", ["0.0.0.0:9092", "[::]:9092", "10.0.0.5:9092", "broker1:9092", "[2001:db8::1]:9092"])
@each_case("key", ["inter_broker", "proxy_protocol"])
def test_listener_that_trusts_every_client_is_a_warning(bind: str, key: str) -> None:
    (found,) = of_listener(bind, f"{key}: true")

    assert found.startswith(f"f.yaml:5: listeners[0].{key}: warning: every client that reaches {bind} may ")


@each_case("bind", ["127.0.0.1:9092", "127.8.0.1:9092", "localhost:9092", "[::1]:9092"])
@each_case("key", ["inter_broker", "proxy_protocol"])
def test_trusting_listener_on_loopback_is_no_warning(bind: str, key: str) -> None:
    assert of_listener(bind, f"{key}: true") == []


@each_case(
    "more",
    [
        "inter_broker: false",
        "proxy_protocol: false",
        "proxy_protocol: {from: [10.0.0.0/8]}",
        "{inter_broker: true, client_tls: {certificate: c, key: k, client_ca: ca, client_auth: required}}",
    ],
)
def test_listener_that_does_not_trust_clients_is_no_warning(more: str) -> None:
    more = more if more.endswith("}}") else f"{{{more}}}"

    assert warnings(f"listeners: [{{name: a, bind: '0.0.0.0:1', upstream: 'b:2', {more[1:-1]}}}]\n") == []


@each_case("key", ["brokers", "exempt"])
@each_case("name", ["ANONYMOUS", "UNKNOWN"])
def test_anonymous_or_unknown_in_a_list_of_users_is_a_warning(key: str, name: str) -> None:
    (found,) = warnings(f"{LISTENERS}principals: {{{key}: [broker1, {name}]}}\n")

    assert found.startswith(f"f.yaml:2: principals.{key}[1]: warning: {name} is every client ")


@each_case(
    "text",
    [
        "enforcement: []",
        "quotas: [{user: a, producer_byte_rate: 1MB, enforcement: [observe]}]",
        "quotas: [1, {user: [a], client-id: {}, producer_byte_rate: []}, {ip: 5}]",
        "quotas: [{user: a, producer_byte_rate: a}, {user: a, client-id: <default>, producer_byte_rate: 1}]",
        "principals: {fold: [3, {match: '(', to: x}, {match: a, to: '\\9'}], exempt: 5, brokers: [1, [2]]}",
        "kafka: {quota.window.num: x, quota.window.size.seconds: [], quota.producer.default: {}}",
        "burst: []",
        "max_throttle_time: 0s",
    ],
)
def test_value_of_the_wrong_type_is_left_to_the_schema(text: str) -> None:
    assert faults(f"{LISTENERS}{text}\n")


def test_listener_of_the_wrong_type_is_left_to_the_schema() -> None:
    assert faults("listeners: [{name: a, bind: [], upstream: b:2, inter_broker: true, proxy_protocol: true}, 5]\n")


# -- testing --


def test_testing_is_off_unless_the_file_says_so() -> None:
    assert not loaded(LISTENERS).config.testing
    assert not loaded(f"{LISTENERS}testing: false\n").config.testing


def test_testing_needs_the_admin_port() -> None:
    (fault,) = faults(f"{LISTENERS}testing: true\n")

    assert fault.startswith("f.yaml:2: testing: needs the admin port")


@each_case(
    "bind, warns",
    [
        ("127.0.0.1:9644", False),
        ("localhost:9644", False),
        ("'[::1]:9644'", False),
        ("'[::]:9644'", True),
        ("10.0.0.1:9644", True),
    ],
)
def test_public_admin_port_is_warned_of(bind: str, warns: bool) -> None:
    found = loaded(f"{LISTENERS}testing: true\nadmin: {{bind: {bind}}}\n")

    assert found.config.testing
    assert [one.key for one in found.warnings if "testing" in one.message] == ["admin.bind"] * warns
