"""Tests of ``config.trust``."""

import ssl
from pathlib import Path

import pytest

from kafka_quota_proxy.config.trust import BrokerSideContext, trust
from tests.support.certificates import Authority
from tests.support.handshakes import shake

BROKERS = Authority("brokers")


def broker(directory: Path, *, host: str, asked_for: list[str | None]) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*BROKERS.issue("broker", hosts=[host]).save(directory, "broker"))
    context.sni_callback = lambda _, name, __: asked_for.append(name)
    return context


def trusting(ca: str) -> ssl.SSLContext:
    context = BrokerSideContext(ssl.PROTOCOL_TLS_CLIENT)
    trust(context, ca)
    return context


def test_an_intermediate_alone_is_trusted_as_in_a_java_truststore(tmp_path: Path) -> None:
    between = Authority("between", parent=BROKERS)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(*between.issue("broker", hosts=["kafka.example"]).save(tmp_path, "broker"))

    shake(server, trusting(between.save(tmp_path, "ca")), "kafka.example")


# -- a final dot --


@pytest.mark.parametrize("written", ["kafka.example", "kafka.example."])
def test_a_final_dot_is_no_part_of_the_name_in_sni_and_certificates(tmp_path: Path, written: str) -> None:
    asked_for: list[str | None] = []
    server = broker(tmp_path, host="kafka.example", asked_for=asked_for)

    shake(server, trusting(BROKERS.save(tmp_path, "ca")), written)

    assert asked_for == ["kafka.example"]


@pytest.mark.parametrize("written", ["kafka.example..", "other.example."])
def test_a_certificate_for_another_name_is_refused(tmp_path: Path, written: str) -> None:
    server = broker(tmp_path, host="kafka.example", asked_for=[])

    with pytest.raises(ssl.SSLCertVerificationError, match="mismatch"):
        shake(server, trusting(BROKERS.save(tmp_path, "ca")), written)
