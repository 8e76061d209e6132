"""The support code of these tests: a proxy whose address is taken, and the shares of a quota."""

from __future__ import annotations

import pytest

from tests.end_to_end.support.crowds import Answer, Outcome
from tests.end_to_end.support.kafka import PROXIED
from tests.end_to_end.support.processes import HarnessError, free_port
from tests.end_to_end.support.proxy import Proxy
from tests.end_to_end.support.shares import fairness, shares


def test_second_proxy_of_a_cluster_names_the_first_in_its_error() -> None:
    bind = f"127.0.0.1:{free_port()}"
    settings = {"listeners": [{"name": PROXIED, "bind": bind, "upstream": f"127.0.0.1:{free_port()}"}]}

    with Proxy(settings) as first, pytest.raises(HarnessError) as error, Proxy(settings):
        pass

    assert f"listens on {bind}" in str(error.value)
    assert str(first.file) in str(error.value)
    assert "test_second_proxy_of_a_cluster_names_the_first_in_its_error" in str(error.value)
    with Proxy(settings) as again:
        again.kill()
        again.start()


def test_shares_of_a_quota_by_window_and_by_connection() -> None:
    # Each second has 100 B, except for one with 300 B and one with none. The first connection gets three of four
    # responses.
    sizes = [100] * 10 + [300, 0] + [100] * 10
    answers = [Answer(second + 0.5, 0.0, int(second % 4 == 0), size, 0) for second, size in enumerate(sizes)]
    seen = Outcome(begin_s=0, end_s=22, connections=2, answers=answers, errors={}, closed=0, open_s=[3.0])

    found = shares(seen, quota=100, after_s=0, window_s=4)

    assert (found.mean, found.lowest, found.highest) == (2_300 / 2_200, 0.75, 1.5)
    assert seen.longest_s == 3.0
    assert seen.empty == 1
    apart = fairness(seen, after_s=0)
    assert apart is not None
    assert (apart.least, apart.most) == (600 / 1_150, 1_700 / 1_150)
    assert fairness(seen, after_s=2) is None
