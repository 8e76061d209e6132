"""A store in a topic of a cluster with TLS, a login, and the ACLs that share-one-store.md lists."""

from __future__ import annotations

from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any, Final

import pytest

from tests.end_to_end.support.artifacts import KAFKA_4
from tests.end_to_end.support.clients import QUIET, create_topic
from tests.end_to_end.support.logins import add_scram_users, secret_of
from tests.end_to_end.support.processes import wait_until
from tests.end_to_end.support.proxy import Proxy
from tests.end_to_end.support.quota_fleet import Admin, detail, settings
from tests.end_to_end.support.tls_kafka import TlsKafka
from tests.support.certificates import Authority

# The annotations of confluent-kafka are incomplete.
_ADMIN: Final[Any] = import_module("confluent_kafka.admin")
_LOGIN: Final = {
    "ssl.client.auth": "required",
    "sasl.enabled.mechanisms": "SCRAM-SHA-512",
    "scram-sha-512.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required;",
}
_AUTHORISER: Final[dict[str, str | int]] = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
_RIGHTS: Final = ("READ", "WRITE", "DESCRIBE", "DESCRIBE_CONFIGS")
_KAFKA_STORAGE_ERROR: Final = 56
_P: Final = "producer_byte_rate"
_ALICE: Final = (("user", "alice"),)


def _right(topic: str, right: str) -> tuple[object, ...]:
    """Return the arguments of an ACL binding, or of a filter, for this right."""
    names = (_ADMIN.ResourceType.TOPIC, topic, _ADMIN.ResourcePatternType.LITERAL, "User:keeper", "*")
    return *names, _ADMIN.AclOperation[right], _ADMIN.AclPermissionType.ALLOW


@pytest.mark.long
def test_store_works_with_certificate_login_and_four_rights(tmp_path: Path) -> None:
    authority = Authority("everybody's")
    password = tmp_path / "password"
    password.write_text(f"{secret_of('keeper')}\n")
    password.chmod(0o640)
    certificate, key = authority.issue("keeper").save(tmp_path, "keeper")
    client = {
        "security_protocol": "SASL_SSL", "sasl_mechanism": "SCRAM-SHA-512", "sasl_username": "keeper",
        "sasl_password_file": str(password), "ssl_cafile": authority.save(tmp_path, "ca"),
        "ssl_certfile": certificate, "ssl_keyfile": key,
    }  # fmt: skip
    with TlsKafka(
        KAFKA_4, tmp_path, authority, tls={"LOGIN": _LOGIN}, unproxied=["LOGIN"], sasl=["LOGIN"], config=_AUTHORISER
    ) as kafka:
        add_scram_users(kafka, ["keeper"], "SCRAM-SHA-512")
        # The proxy can report this wrong configuration only with the right to read it.
        topic = create_topic(kafka, config={"cleanup.policy": "delete"})
        admin = _ADMIN.AdminClient({"bootstrap.servers": kafka.bootstrap_servers, **QUIET})
        rights = [_ADMIN.AclBinding(*_right(topic, right)) for right in _RIGHTS]
        for done in admin.create_acls(rights).values():
            done.result(timeout=30)
        file = settings(kafka, topic, kafka.tls_endpoint("LOGIN").address)
        file["store"]["kafka"] |= client
        with Proxy(file) as proxy:
            with Admin(proxy.port()) as who:
                assert who.alter(_ALICE, {_P: 1000.0}).error_code == 0
                assert who.describe() == {frozenset(_ALICE): {_P: 1000.0}}
            wait_until(lambda: "has cleanup.policy=delete" in proxy.log, timeout_s=10, what="its configuration is seen")
            proxy.kill()
            proxy.start()

            with Admin(proxy.port()) as who:
                # The quota is in the topic only.
                assert who.describe() == {frozenset(_ALICE): {_P: 1000.0}}
                writes = _ADMIN.AclBindingFilter(*_right(topic, "WRITE"))
                for gone in admin.delete_acls([writes]).values():
                    assert len(gone.result(timeout=30)) == 1
                limits, kept = count(2_000), [1000.0]

                def is_refused() -> bool:
                    limit = float(next(limits))
                    if who.alter(_ALICE, {_P: limit}).error_code == _KAFKA_STORAGE_ERROR:
                        return True
                    kept.append(limit)
                    return False

                wait_until(is_refused, timeout_s=10, what="a change is refused")
                assert who.describe() == {frozenset(_ALICE): {_P: kept[-1]}}
            assert "needs the rights READ, WRITE and DESCRIBE for the topic" in proxy.log
            assert detail(proxy)["connected"]
            assert secret_of("keeper") not in proxy.log
