"""The broker and the proxy throttle the same requests under the same ``request_percentage``.

The proxy cannot see the broker's threads, so it charges an estimate: ``docs/explanation/request-time.md``.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from tests.end_to_end.support.request_rates import (
    HANDSHAKE,
    LOADS,
    PERCENT,
    SMALL_PERCENT,
    Ask,
    limited_alike,
    measured_scale,
)

# To print figures for bench/REQUEST_TIME.md: -o log_cli=true --log-cli-level=INFO
_LOG = logging.getLogger(__name__)


@pytest.fixture(scope="module")
def ask_to_scale() -> Iterator[Ask]:
    scale = measured_scale()
    _LOG.info("request_time_scale: %.2f", scale)
    with limited_alike(scale) as ask:
        yield ask


def test_client_is_throttled_about_as_by_its_broker() -> None:
    """The bounds are wide, because a broker that has just started charges up to three times the estimate."""
    with limited_alike() as ask:
        ratio = ask(LOADS[0], 1, 5, SMALL_PERCENT)
        handshakes = ask(HANDSHAKE, 1, 3, SMALL_PERCENT)

    assert 0.4 < ratio.median < 4, str(ratio)
    # Both charge for a handshake that fails. If it were free, the client would get ten times as much.
    assert 0.1 < handshakes.median < 4, str(handshakes)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("load", LOADS)
def test_client_gets_as_many_responses_as_under_its_brokers_quota(load: str, ask_to_scale: Ask) -> None:
    ratio = ask_to_scale(load, 5, 10, PERCENT)

    _LOG.info("%s | %s", load, ratio)
    assert ratio.median == pytest.approx(1, abs=0.15), str(ratio)
