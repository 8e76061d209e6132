"""The pytest plugin: the fixture ``kafka_throttle`` throttles the Kafka clients of a test.

Installing the package registers it. It starts nothing until a test asks for the fixture.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, Final

import pytest

from kafka_quota_proxy.testing.control import ControlError
from kafka_quota_proxy.testing.throttling_proxy import StartError, ThrottlingProxy

_OPTION: Final = "--kafka-bootstrap-servers"
_INI: Final = "kafka_bootstrap_servers"
_FIXTURE: Final = "kafka_throttle"
_NO_CLIENT: Final = "none: clients connect to kafka_throttle.bootstrap_servers"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the option, and the key of the ini file, that name a Kafka."""
    text = "run kafka_throttle in front of this Kafka (HOST:PORT, with commas between several), not an embedded broker"
    parser.getgroup("kafka").addoption(_OPTION, default=None, metavar="SERVERS", help=text)
    parser.addini(_INI, text, default="")


@pytest.fixture(scope="session")
def kafka_throttle_session(request: pytest.FixtureRequest) -> Iterator[ThrottlingProxy]:
    """A proxy that all tests of the run share. Nothing resets it between tests; ``kafka_throttle`` is reset."""
    servers = request.config.getoption(_OPTION) or request.config.getini(_INI) or None
    with ExitStack() as stack:
        try:
            proxy = stack.enter_context(ThrottlingProxy(servers))
        except StartError as error:
            pytest.fail(f"{_FIXTURE}: {error}", pytrace=False)  # all other tests with the fixture fail at once, too
        yield proxy


@pytest.fixture
def kafka_throttle(kafka_throttle_session: ThrottlingProxy) -> Iterator[ThrottlingProxy]:
    """A proxy that throttles the Kafka clients of this test on demand. Clients use its ``bootstrap_servers``."""
    kafka_throttle_session.reset()
    yield kafka_throttle_session
    kafka_throttle_session.reset()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Add what the proxy has seen, and what it still waits for, to the report of a test that fails."""
    outcome: Any = yield
    report: pytest.TestReport = outcome.get_result()
    proxy = getattr(item, "funcargs", {}).get(_FIXTURE)
    if call.when == "call" and report.failed and isinstance(proxy, ThrottlingProxy):
        report.sections += _sections(proxy)


def _sections(proxy: ThrottlingProxy) -> Iterator[tuple[str, str]]:
    try:
        yield "throttled responses", repr(proxy.observed())
        yield "clients that were seen", "\n".join(map(str, proxy.clients())) or _NO_CLIENT
    except ControlError as error:  # the proxy may be what has failed
        yield "kafka_throttle", str(error)
