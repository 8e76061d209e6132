"""The login of this program's own clients."""

from pathlib import Path

import pytest

from kafka_quota_proxy.config.model import AdminClient
from kafka_quota_proxy.config.security import SaslMechanism, SecurityProtocol
from kafka_quota_proxy.proxy.background.client_security import security


@pytest.mark.parametrize(("content", "password"), [("secret\nnotes\n", "secret"), ("secret", "secret"), ("", "")])
def test_the_password_is_the_first_line_of_its_file(tmp_path: Path, content: str, password: str) -> None:
    file = tmp_path / "password"
    file.write_text(content)
    settings = AdminClient(
        security_protocol=SecurityProtocol.SASL_PLAINTEXT,
        sasl_mechanism=SaslMechanism.SCRAM_SHA_512,
        sasl_username="quota-proxy",
        sasl_password_file=str(file),
    )

    assert security(settings) == {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "quota-proxy",
        "sasl_plain_password": password,
    }


def test_without_sasl_there_is_no_login() -> None:
    assert security(AdminClient()) == {"security_protocol": "PLAINTEXT"}


def test_error_of_a_password_that_is_not_utf_8_names_its_file(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_bytes(b"secret\xff\n")
    settings = AdminClient(
        security_protocol=SecurityProtocol.SASL_PLAINTEXT,
        sasl_mechanism=SaslMechanism.PLAIN,
        sasl_username="quota-proxy",
        sasl_password_file=str(file),
    )

    with pytest.raises(OSError, match=f"the password is not UTF-8: '{file}'"):
        security(settings)
