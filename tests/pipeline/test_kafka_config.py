"""A file of Kafka client properties is read as Kafka's tools read it. Both Kafka clients accept the result."""

import ssl
from pathlib import Path

import pytest

from kafka_quota_proxy.config.tls_context import BrokerSideContext
from kafka_quota_proxy.pipeline.errors import InputError
from kafka_quota_proxy.pipeline.kafka_config import KafkaConfig, read_kafka_config
from tests.support.certificates import Authority

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"
LOGIN = f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\nsasl.jaas.config={SCRAM} "


def config_of(tmp_path: Path, text: str) -> KafkaConfig:
    """Return the configuration that is read from a properties file with this text."""
    path = tmp_path / "client.properties"
    path.write_text(text, encoding="utf-8")
    return read_kafka_config(str(path))


def test_a_file_is_read_as_java_reads_it(tmp_path: Path) -> None:
    text = (
        "# a comment\n! another\n\n"
        "security.protocol = SSL\r\n"
        "  client.id : a=b:c \n"
        "ssl.key.password b\\u00fcro\\\\\n"
        "sasl.jaas.config=one \\\n    two \\\n# three;\n"
        "metadata.max\\ age=1\n"
        "alone"
    )

    config = config_of(tmp_path, text)

    assert config.spark_options() == {
        "kafka.security.protocol": "SSL",
        "kafka.client.id": "a=b:c ",
        "kafka.ssl.key.password": "büro\\",
        "kafka.sasl.jaas.config": "one two # three;",
        "kafka.metadata.max age": "1",
        "kafka.alone": "",
    }
    assert [setting.line for setting in config.settings.values()] == [4, 5, 6, 7, 10, 11]


def test_without_a_file_there_is_no_login() -> None:
    assert KafkaConfig().spark_options() == {}
    assert KafkaConfig().client_keywords() == {"security_protocol": "PLAINTEXT"}


@pytest.mark.parametrize(
    ("jaas", "user", "password"),
    [
        ('username="alice" password="alice-secret";', "alice", "alice-secret"),
        ("password='a\"b' username=alice;", "alice", 'a"b'),
        ('username="a\\\\\\"b" password="";', 'a"b', ""),
        ('serviceName="x" username="password=1" password="p;q r";', "password=1", "p;q r"),
    ],
)
def test_the_name_and_password_of_a_login_are_found(tmp_path: Path, jaas: str, user: str, password: str) -> None:
    keywords = config_of(tmp_path, LOGIN + jaas).client_keywords()

    assert keywords == {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": user,
        "sasl_plain_password": password,
    }


def test_authorities_and_an_own_certificate_are_pem(tmp_path: Path) -> None:
    authority = Authority("ours")
    issued = authority.issue("me")
    (tmp_path / "ca.pem").write_bytes(authority.pem)
    (tmp_path / "me.pem").write_bytes(issued.key + issued.certificate)
    text = (
        f"security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location={tmp_path}/ca.pem\n"
        f"ssl.keystore.type=PEM\nssl.keystore.location={tmp_path}/me.pem\n"
    )

    context = config_of(tmp_path, text).client_keywords()["ssl_context"]
    unchecked = config_of(tmp_path, text + "ssl.endpoint.identification.algorithm=\n").client_keywords()["ssl_context"]

    assert isinstance(context, BrokerSideContext)  # so that a final dot of a broker's name is not checked
    assert isinstance(unchecked, ssl.SSLContext)
    assert context.verify_mode is unchecked.verify_mode is ssl.CERT_REQUIRED
    assert (context.check_hostname, unchecked.check_hostname) == (True, False)
    assert len(context.get_ca_certs()) == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("bootstrap.servers=a:1\n", "1: bootstrap.servers: is set by this program; remove it"),
        ("a=1\nb=2\na=3\n", "3: a: is given in line 1 already"),
        ("\nsecurity.protocol=TLS\n", "2: security.protocol: 'TLS' is none of PLAINTEXT, SSL,"),
    ],
)
def test_a_faulty_line_is_named(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(InputError) as fault:
        config_of(tmp_path, text)

    assert str(fault.value).startswith(f"{tmp_path}/client.properties:{said}")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("security.protocol=SASL_SSL\n", "1: sasl.mechanism: GSSAPI is not among those of --to: PLAIN, SCRAM-SHA-256"),
        (LOGIN + 'username="a";', "3: sasl.jaas.config: has no password; write "),
        (LOGIN + "\nsasl.login.class=x", "4: sasl.login.class: is not understood by --to"),
        ("security.protocol=SSL\nssl.truststore.location=x.jks\n", "1: ssl.truststore.type: is JKS; --to reads PEM"),
        ("security.protocol=SSL\nssl.cipher.suites=x\n", "2: ssl.cipher.suites: is not understood by --to"),
        (
            "security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location=absent.pem\n",
            "3: ssl.truststore.location: absent.pem: No such file",
        ),
    ],
)
def test_settings_that_only_spark_supports_are_refused_for_writing(tmp_path: Path, text: str, said: str) -> None:
    config = config_of(tmp_path, text)

    with pytest.raises(InputError) as fault:
        config.client_keywords()

    assert str(fault.value).startswith(f"{tmp_path}/client.properties:{said}")


def test_passwords_are_not_printed(tmp_path: Path) -> None:
    config = config_of(tmp_path, LOGIN + 'user="a" password="hush";')

    with pytest.raises(InputError) as fault:
        config.client_keywords()

    assert "hush" not in f"{config!r} {config} {fault.value}"


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read: No such file"):
        read_kafka_config(str(tmp_path / "absent"))
