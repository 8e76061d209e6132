"""Tests the thread that asks the proxy."""

import time
from collections.abc import Callable

from kafka_quota_proxy.proxy.cli.admin_client import AdminPortError
from kafka_quota_proxy.proxy.cli.top.poller import Page, Poller, Query


def wait_for(is_done: Callable[[], bool]) -> None:
    until_s = time.monotonic() + 10
    while not is_done():
        assert time.monotonic() < until_s
        time.sleep(0.005)


def test_a_changed_query_is_asked_at_once() -> None:
    def ask(query: Query) -> Page:
        return {"asked": query["sort"]}

    with Poller(ask, interval_s=1_000) as poller:
        poller.want({"sort": "rate"})
        wait_for(lambda: poller.answer.page == {"asked": "rate"})
        poller.want({"sort": "user"})
        wait_for(lambda: poller.answer.page == {"asked": "user"})

    assert poller.answer.query == {"sort": "user"}


def test_a_proxy_that_is_away_is_asked_again_and_the_last_page_stays() -> None:
    is_away, failures = False, 0

    def ask(query: Query) -> Page:
        nonlocal failures
        if is_away:
            failures += 1
            raise AdminPortError(f"refused {query['limit']}")
        return {"failures": failures}

    with Poller(ask, interval_s=0.01) as poller:
        poller.want({"limit": "1"})
        wait_for(lambda: poller.answer.page is not None)
        is_away = True
        wait_for(lambda: failures >= 3)
        away = poller.answer
        assert (away.page, away.trouble) == ({"failures": 0}, "refused 1")
        assert away.lost_s <= time.monotonic()
        is_away = False
        wait_for(lambda: not poller.answer.trouble)
