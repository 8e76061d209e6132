"""Tests which fault an exception of a connection to a broker shows. ``test_upstream_probe`` tests real ones."""

import socket
import ssl

import pytest

from kafka_quota_proxy.config.model import Address
from kafka_quota_proxy.proxy.server.brokers.faults import Fault, fault_of

BROKER = Address(host="b", port=9092)


@pytest.mark.parametrize(
    ("error", "is_connected", "reason"),
    [
        (TimeoutError(), False, "silent"),
        (TimeoutError(), True, "silent"),
        (
            OSError("Multiple exceptions: [Errno 111] Connect call failed ('::1', 1, 0, 0), [Errno 111] …"),
            False,
            "refused",
        ),
        (OSError(113, "No route to host"), False, "unreachable"),
        (socket.gaierror(-2, "Name or service not known"), False, "unknown_host"),
        (ConnectionResetError(104, "Connection reset by peer"), False, "closed"),
        (ConnectionResetError(104, "Connection reset by peer"), True, "closed"),
        (ssl.SSLError(1, "whatever"), False, "tls_failed"),
    ],
)
def test_each_error_has_a_reason_and_a_later_connection_disproves_only_those_of_dials(
    error: Exception, is_connected: bool, reason: str
) -> None:
    fault = fault_of(error, BROKER, None, after_s=10, is_connected=is_connected)

    assert (fault.reason, fault.is_behind_dial) == (reason, is_connected)
    assert fault.detail


def test_silence_names_its_length() -> None:
    assert fault_of(TimeoutError(), BROKER, None, after_s=10) == Fault(
        "silent", "no response in 10 s; is a firewall in between?"
    )
