"""Tests the addresses, logins and TLS of the proxy's own clients."""

import ssl
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from kafka_quota_proxy.config.model import Address, AdminClient
from kafka_quota_proxy.config.security import SaslMechanism, SecurityProtocol
from kafka_quota_proxy.proxy.kafka_client.client_security import connection, security
from tests.support.certificates import Authority
from tests.support.handshakes import shake


def login(file: Path) -> AdminClient:
    return AdminClient(
        bootstrap_servers=(Address(host="k1", port=9092), Address(host="::1", port=9093)),
        security_protocol=SecurityProtocol.SASL_PLAINTEXT,
        sasl_mechanism=SaslMechanism.SCRAM_SHA_512,
        sasl_username="quota-proxy",
        sasl_password_file=str(file),
    )


@pytest.mark.parametrize(("content", "password"), [("secret\nnotes\n", "secret"), ("secret", "secret"), ("", "")])
def test_the_password_is_the_first_line_of_its_file(tmp_path: Path, content: str, password: str) -> None:
    file = tmp_path / "password"
    file.write_text(content)

    assert security(login(file))["sasl_plain_password"] == password
    assert security(AdminClient()) == {"security_protocol": "PLAINTEXT"}


def test_error_of_a_password_that_is_not_utf_8_names_its_file(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_bytes(b"secret\xff\n")

    with pytest.raises(OSError, match=f"the password is not UTF-8: '{file}'"):
        security(login(file))


def test_login_and_certificates_are_those_of_the_file(tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("secret\n")
    ca = Authority("brokers").save(tmp_path, "ca")
    with_tls = replace(
        login(password), security_protocol=SecurityProtocol.SASL_SSL, ssl_cafile=ca, ssl_check_hostname=False
    )

    found = connection(with_tls, "me")

    context = found.pop("ssl_context")
    assert not context.check_hostname  # type: ignore[attr-defined]
    assert len(context.get_ca_certs()) == 1  # type: ignore[attr-defined]
    assert found == {
        "bootstrap_servers": ["k1:9092", "[::1]:9093"],
        "client_id": "me",
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "quota-proxy",
        "sasl_plain_password": "secret",
    }


def test_a_broker_is_checked_by_its_name_without_the_final_dot(tmp_path: Path) -> None:
    authority = Authority("brokers")
    broker = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    broker.load_cert_chain(*authority.issue("broker", hosts=["kafka.example"]).save(tmp_path, "broker"))
    found = security(AdminClient(security_protocol=SecurityProtocol.SSL, ssl_cafile=authority.save(tmp_path, "ca")))

    shake(broker, cast(ssl.SSLContext, found["ssl_context"]), "kafka.example.")
