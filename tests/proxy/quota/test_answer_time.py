"""Tests how long a broker with data is taken to need for an answer."""

from kafka_quota_proxy.proxy.quota.answer_time import AnswerTime


def test_quick_answers_lower_the_time() -> None:
    time = AnswerTime()
    assert time.ms == 21
    for _ in range(50):
        time.note(1, had_data=False)
    assert time.ms == 2


def test_only_a_fetch_for_which_there_was_data_raises_the_time() -> None:
    time = AnswerTime()

    time.note(500, had_data=False)
    assert time.ms == 21
    time.note(300, had_data=True)
    assert time.ms == 301


def test_time_is_bounded() -> None:
    time = AnswerTime()
    time.note(100_000, had_data=True)
    assert time.ms == 5_000
