"""``balance --follow`` with a fake clock, topic and stream: its arguments, its publications and its end."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from pathlib import Path
from threading import Event, Lock
from types import SimpleNamespace
from typing import NamedTuple, cast
from unittest.mock import MagicMock

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame

from kafka_quota_proxy.config.model import ProxyConfig, QuotaRule
from kafka_quota_proxy.config.quota_record import QuotaRecord, Rule, Share
from kafka_quota_proxy.pipeline.__main__ import main
from kafka_quota_proxy.pipeline.balancer import Balancer, Bucket, Moved, Publication, Terms
from kafka_quota_proxy.pipeline.commands import balance_stream
from kafka_quota_proxy.pipeline.errors import PipelineError
from kafka_quota_proxy.pipeline.quota_topic import Found, QuotaTopic

TO = "kafka://127.0.0.1:1/quotas"
USAGE = "kafka://127.0.0.1:1/usage"


@pytest.fixture
def limits(tmp_path: Path) -> str:
    path = tmp_path / "cluster.yaml"
    path.write_text("quotas: [{user: alice, producer_byte_rate: 3MB}]\n", encoding="utf-8")
    return str(path)


def test_settings_that_do_not_go_to_the_topic_are_reported(limits: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["balance", "--follow", "--usage", USAGE, "--to", "quotas", "--proxies", "a", "--limits", limits]
    assert main(words) == 2
    without = capsys.readouterr().err
    Path(limits).write_text(
        "quotas: [{user: alice, producer_byte_rate: 3MB, enforcement: observe}]\n", encoding="utf-8"
    )

    assert main(words) == 2

    assert "enforcement and shaping do not go to the topic: each proxy's own file has them" in capsys.readouterr().err
    assert "enforcement" not in without


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--usage", "usage"], "balance needs --out DIR; or --follow"),
        (["--usage", "usage", "--out", "o", "--to", TO], "--to and --proxies go with --follow"),
        (["--usage", USAGE, "--follow", "--proxies", "a,b"], "balance --follow needs --to"),
        (["--usage", USAGE, "--follow", "--to", TO], "balance --follow needs --proxies"),
        (
            ["--usage", USAGE, "--follow", "--to", TO, "--proxies", "a", "--out", "o"],
            "--out is for a log that has ended",
        ),
        (["--usage", USAGE, "--follow", "--to", TO, "--proxies", "a", "--last", "1m"], "--last is for a log"),
        (["--usage", "usage", "--follow", "--to", TO, "--proxies", "a"], "--usage usage: --follow follows a topic"),
        (
            ["--usage", USAGE, "--follow", "--to", "quotas", "--proxies", "a"],
            "--to quotas: write kafka://HOST:PORT/TOPIC",
        ),
        (
            ["--usage", USAGE, "--follow", "--to", TO, "--proxies", "a", "--lease", "5s"],
            "at least 3 times --every (2s)",
        ),
        (
            ["--usage", USAGE, "--follow", "--to", TO, "--proxies", "a", "--lease", "2s", "--every", "500ms"],
            "--lease 2s: 3s is the least",
        ),
        (["--usage", USAGE, "--follow", "--to", TO, "--proxies", "a", "--lease", "2h"], "at most 1h"),
    ],
)
def test_wrong_usage_is_refused_before_spark_starts(
    words: list[str], said: str, limits: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["balance", "--limits", limits, *words]) == 2

    assert said in capsys.readouterr().err


def test_a_wrong_limit_is_reported_with_its_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text("quotas:\n  - {user: alice, producer_byte_rate: much}\n", encoding="utf-8")

    status = main(["balance", "--limits", str(path), "--usage", USAGE, "--follow", "--to", TO, "--proxies", "a,b"])

    assert status == 2
    assert f"{path}:2: quotas[0].producer_byte_rate" in capsys.readouterr().err


@pytest.mark.parametrize("names", ["a,,b", "a b", "a,a", "ä"])
def test_names_of_proxies_are_as_in_their_files(names: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["balance", "--limits", "l", "--usage", USAGE, "--follow", "--to", TO, "--proxies", names])

    assert "argument --proxies" in capsys.readouterr().err


def balancer(*rules: QuotaRule) -> Balancer:
    terms = Terms(lease_ms=8_000, delay_ms=1_000, floor=0.03)
    return Balancer(ProxyConfig(listeners=(), quotas=rules), ("a", "b", "c"), terms)


def test_old_records_are_removed_before_the_first_news_and_valid_ones_stay() -> None:
    one = balancer(QuotaRule(user="alice", producer_byte_rate=3_000.0), QuotaRule(user="bob", producer_byte_rate=30.0))
    found = Found(
        rules=(
            Rule(user="alice", limits={"producer_byte_rate": 1_000.0}),
            Rule(user="bob", limits={"producer_byte_rate": 5.0}),
            Rule(client_id="gone", limits={"consumer_byte_rate": 5.0}),
        ),
        shares=(Share(proxy="a", user="alice", limits={"producer_byte_rate": 2_000.0}),),
        lease_ms=8_000,
    )

    assert list(balance_stream._first(one, found)) == [
        Share(proxy="a", user="alice"),
        Rule(client_id="gone"),
        Rule(user="bob", limits={"producer_byte_rate": 10.0}),
    ]


def test_changed_shares_are_printed_up_to_a_number(capsys: pytest.CaptureFixture[str]) -> None:
    moved = [
        Moved(Bucket("produce", "alice", "\x1b[2J"), {"a": 2_000_000, "b": 30_000}),
        Moved(Bucket("fetch", "", "etl"), {}),
        *(Moved(Bucket("fetch", "", f"c{number}"), {"a": 1}) for number in range(10)),
    ]

    balance_stream._report(Publication([], moved), balancer())

    lines = [line.partition(" ")[2] for line in capsys.readouterr().err.splitlines()]
    assert lines[0] == r"'alice / \x1b[2J', produce: a 2 MB/s, b 30 kB/s"
    assert lines[1] == "etl, fetch: even shares again"
    assert lines[5:] == ["and shares of 7 more"]


class FakeTime:
    """A clock that advances only when the program waits."""

    def __init__(self) -> None:
        self.now_s = 1_000.0

    def monotonic(self) -> float:
        return self.now_s

    def time_ns(self) -> int:
        return int(self.now_s * 1e9)

    def strftime(self, _: str) -> str:
        return "12:00:00"


class FakeEnd:
    """The event that ends the command. It becomes set after a number of waits."""

    def __init__(self, clock: FakeTime, waits: int) -> None:
        self._clock, self.waits = clock, waits

    def is_set(self) -> bool:
        return self.waits <= 0

    def wait(self, seconds: float) -> bool:
        self.waits -= 1
        self._clock.now_s += seconds
        return self.is_set()


class FakeTopic:
    """A quota topic that keeps the publications with their times. A publication takes ``took_s``.

    From ``other_from_s`` on another publisher writes too. ``looked_s`` is the time of the last read.
    """

    def __init__(self, clock: FakeTime) -> None:
        self.published: list[tuple[float, list[QuotaRecord]]] = []
        self.looked_s = 0.0
        self.other_from_s = float("inf")
        self.took_s = 0.0
        self.found = Found(rules=(), shares=(), lease_ms=None)
        self._clock = clock

    def begin(self) -> Found:
        return self.found

    def end(self) -> None:
        pass

    def publish(self, records: Iterable[QuotaRecord]) -> None:
        assert self.looked_s == self._clock.now_s
        self.published.append((self._clock.now_s, list(records)))
        self._clock.now_s += self.took_s

    def check_alone(self) -> None:
        if self._clock.now_s >= self.other_from_s:
            raise PipelineError("another balance --follow")
        self.looked_s = self._clock.now_s


class FakeStream:
    def __init__(self) -> None:
        self.lock = Lock()

    def check(self) -> None:
        pass


class Played(NamedTuple):
    clock: FakeTime
    topic: FakeTopic


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Played:
    clock = FakeTime()
    monkeypatch.setattr(balance_stream, "time", clock)
    monkeypatch.setattr(balance_stream, "randbelow", lambda _: 0)
    return Played(clock, FakeTopic(clock))


ARGS = argparse.Namespace(lease=10_000, every=2_000, proxies=["a", "b", "c"])
ALICE = QuotaRule(user="alice", producer_byte_rate=3_000.0)
NOTHING = Found(rules=(), shares=(), lease_ms=None)


def publish(played: Played, *, end: FakeEnd, found: Found = NOTHING) -> None:
    topic, event, stream = (
        cast("QuotaTopic", played.topic),
        cast("Event", end),
        cast("balance_stream._Stream", FakeStream()),
    )
    balance_stream._publish(topic, balancer(ALICE), found, ARGS, end=event, stream=stream)


def test_follow_looks_for_another_publisher_before_it_writes(played: Played) -> None:
    """A process that was suspended must not write if another process has taken over."""
    played.topic.other_from_s = played.clock.now_s + 5

    with pytest.raises(PipelineError, match="another balance"):
        publish(played, end=FakeEnd(played.clock, 100))

    assert [at_s - 1_000 for at_s, _ in played.topic.published] == [0, 2, 4]


@pytest.mark.parametrize(("stood_still_s", "writes"), [(6.9, True), (7.1, False)])
def test_a_process_suspended_for_too_long_ends(played: Played, stood_still_s: float, *, writes: bool) -> None:
    """A write may take half a lease.

    Another process takes over one lease and one --every after the last publication.
    """

    class Stalled(FakeEnd):
        def wait(self, seconds: float) -> bool:
            return super().wait(max(seconds, stood_still_s))

    end = Stalled(played.clock, 2)
    if writes:
        publish(played, end=end)
    else:
        with pytest.raises(PipelineError, match=r"nothing was published for 7\.1 s"):
            publish(played, end=end)

    assert len(played.topic.published) == (2 if writes else 1)


def test_a_publication_times_out_before_another_process_begins() -> None:
    assert balance_stream._latest_ms(ARGS) + balance_stream._delivery_ms(ARGS) <= ARGS.lease + ARGS.every
    assert balance_stream._delivery_ms(ARGS) < ARGS.lease


def test_rules_are_rewritten_every_few_minutes(played: Played, capsys: pytest.CaptureFixture[str]) -> None:
    rule = Rule(user="alice", limits={"producer_byte_rate": 1_000.0})

    publish(played, end=FakeEnd(played.clock, 320))

    written = [at_s - 1_000 for at_s, records in played.topic.published if rule in records]
    assert written == [0, 300, 600]
    assert capsys.readouterr().err.count("1 rules") == 1


class FakeQuery:
    """A streaming query. The test sets its progress and its error."""

    def __init__(self) -> None:
        self.recentProgress: list[object] = []
        self.isActive = True
        self.error: Exception | None = None

    def exception(self) -> Exception | None:
        return self.error

    def stop(self) -> None:
        pass


class Followed(NamedTuple):
    """A stream without Spark. ``come`` processes a batch. As in Spark, a batch that fails ends the query."""

    stream: balance_stream._Stream
    query: FakeQuery

    def come(self, *rows: Mapping[str, object]) -> None:
        batch = cast("DataFrame", SimpleNamespace(collect=lambda: rows))
        try:
            self.stream._take(batch, 0)
        except PipelineError as error:
            self.query.error = StreamingQueryException(f"terminated with exception: {error}")
            self.query.isActive = False


@pytest.fixture
def followed(monkeypatch: pytest.MonkeyPatch) -> Followed:
    query, lines = FakeQuery(), MagicMock()
    lines.writeStream.foreachBatch.return_value.trigger.return_value.start.return_value = query
    monkeypatch.setattr(balance_stream, "parsed", lambda rows: rows)
    monkeypatch.setattr(balance_stream, "recent_use", lambda batch, _: batch)
    monkeypatch.setattr(balance_stream._Stream, "_counted", lambda _, rows: rows)
    args = argparse.Namespace(proxies=["a", "b", "c"], usage=USAGE, explain=False, every=2_000)
    return Followed(balance_stream._Stream(lines, balancer(ALICE), args, Event()), query)


def row(
    proxy: str = "a", broker: int | None = 1, other_broker: int | None = 1, **given: object
) -> Mapping[str, object]:
    return {
        "proxy": proxy, "kind": "produce", "user": "alice", "client_id": "", "amount": 1_000, "interval_ms": 1_000,
        "longest_interval_ms": 1_000, "throttled_requests": 0, "throttle_time_ms": 0,
        "broker": broker, "other_broker": other_broker,
    } | given  # fmt: skip


@pytest.mark.parametrize(
    "batches",
    [
        [[row(broker=1, other_broker=2)]],
        [[row(broker=1, other_broker=1), row(broker=2, other_broker=2)]],
        [[row(broker=1, other_broker=1)], [row("b", 2, 2)], [row(broker=2, other_broker=2)]],
    ],
)
def test_a_proxy_with_several_brokers_ends_the_command(
    batches: list[list[Mapping[str, object]]], followed: Followed
) -> None:
    for batch in batches:
        followed.come(*batch)

    with pytest.raises(PipelineError, match="a is in front of brokers 1 and 2, and its share would apply at each"):
        followed.stream.check()


def test_a_proxy_without_a_known_broker_is_accepted(followed: Followed) -> None:
    for batch in (
        [row(broker=None, other_broker=None)],
        [row(), row("b", 2, 2)],
        [row(broker=None, other_broker=None)],
    ):
        followed.come(*batch)

    followed.stream.check()


LEFT = Found(
    rules=(Rule(user="alice", limits={"producer_byte_rate": 1_000.0}),),
    shares=(Share(proxy="a", user="alice", limits={"producer_byte_rate": 2_000.0}),),
    lease_ms=20_000,
)


@pytest.fixture
def command(played: Played, followed: Followed, monkeypatch: pytest.MonkeyPatch) -> FakeEnd:
    """Prepare ``balance --follow`` with the fakes. The returned event ends the command after 20 waits."""
    end = FakeEnd(played.clock, 20)
    monkeypatch.setattr(balance_stream, "session", MagicMock())
    monkeypatch.setattr(balance_stream, "topic", MagicMock())
    monkeypatch.setattr(balance_stream, "QuotaTopic", lambda *_, **__: played.topic)
    monkeypatch.setattr(balance_stream, "_Stream", lambda *_: followed.stream)
    monkeypatch.setattr(balance_stream, "stop_requested", lambda: nullcontext(end))
    return end


def run(limits: str) -> int:
    return main(["balance", "--limits", limits, "--usage", USAGE, "--follow", "--to", TO, "--proxies", "a,b,c"])


def test_follow_waits_for_the_leases_of_an_earlier_process(
    played: Played, command: FakeEnd, limits: str, capsys: pytest.CaptureFixture[str]
) -> None:
    played.topic.found = LEFT

    assert run(limits) == 0

    begun_s, records = played.topic.published[0]
    assert begun_s - 1_000 == pytest.approx(
        26.666
    )  # the lease of the other publisher, and a third of the lease for its --every
    assert records[:2] == [
        Share(proxy="a", user="alice"),
        Rule(user="alice", limits={"producer_byte_rate": 1_000_000.0}),
    ]
    assert len(played.topic.published) > 1
    assert "waiting 27 s and a little for the leases of an earlier process" in capsys.readouterr().err


def test_a_new_topic_needs_no_wait(played: Played, command: FakeEnd, limits: str) -> None:
    assert run(limits) == 0

    assert played.topic.published[0][0] == 1_000


def test_sigterm_during_the_wait_publishes_nothing(played: Played, command: FakeEnd, limits: str) -> None:
    played.topic.found = LEFT
    command.waits = 3

    assert run(limits) == 0

    assert played.topic.published == []


def test_a_second_publisher_during_the_wait_ends_the_command(
    played: Played, command: FakeEnd, limits: str, capsys: pytest.CaptureFixture[str]
) -> None:
    played.topic.found = LEFT
    played.topic.other_from_s = played.clock.now_s + 2

    assert run(limits) == 1

    assert played.topic.published == []
    assert played.clock.now_s - 1_000 == 2  # it ends when it finds the other publisher, before its first publication
    assert "kafka-quota-pipeline balance: another balance --follow" in capsys.readouterr().err


@pytest.mark.parametrize("found", [NOTHING, LEFT])
def test_a_failed_batch_ends_the_command(
    found: Found, played: Played, followed: Followed, command: FakeEnd, limits: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise PySparkException("the disk is full\n  at java.lang.Thread")

    played.topic.found = found
    with pytest.raises(PipelineError):
        followed.stream._take(cast("DataFrame", SimpleNamespace(collect=fail)), 0)
    followed.query.error = StreamingQueryException("terminated with exception: something of Java's")

    assert run(limits) == 1

    assert played.topic.published == []
    assert capsys.readouterr().err.endswith(f"balance: --usage {USAGE}: the disk is full\n")


def progress(at: str, **given: object) -> Mapping[str, object]:
    read = {"lines": 10, "bad": 0, "bad_one": None, "unknown_one": None} | given
    return {"timestamp": at, "observedMetrics": {"read": read}}


def test_an_unknown_proxy_is_reported_once(followed: Followed, capsys: pytest.CaptureFixture[str]) -> None:
    followed.query.recentProgress = [progress("1", unknown_one="d"), progress("2", unknown_one="\x1b[2J")]
    followed.stream.check()
    followed.query.recentProgress.append(progress("3", unknown_one="d", bad=2, bad_one="usage@3: no JSON"))
    followed.stream.check()

    said = capsys.readouterr().err.splitlines()
    assert said[0] == "d writes to the log and is not among --proxies: its traffic is not part of the limits"
    assert said[1].startswith("'\\x1b[2J writes to the log")
    assert said[2] == "bad lines are ignored, such as usage@3: no JSON"
    assert len(said) == 3
    assert followed.stream.words() == "30 lines, 2 of them bad"


def test_a_stream_that_ended_without_an_error_ends_the_command(followed: Followed) -> None:
    followed.query.isActive = False

    with pytest.raises(PipelineError, match="the stream has ended"):
        followed.stream.check()


def test_long_intervals_are_reported_once(followed: Followed, capsys: pytest.CaptureFixture[str]) -> None:
    followed.come(row(longest_interval_ms=60_000))
    followed.come(row(longest_interval_ms=90_000), row("b", longest_interval_ms=61_000))

    assert capsys.readouterr().err == (
        "a logs at intervals of 90 s, so a moved load is noticed late; set interval of usage_log to 1 to 5 s\n"
    )


def test_one_of_two_simultaneous_starts_ends(
    played: Played, command: FakeEnd, limits: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    played.topic.found = LEFT
    monkeypatch.setattr(balance_stream, "randbelow", lambda below_ms: below_ms // 2)
    played.topic.other_from_s = played.clock.now_s + 26.7  # one moment later than the command waits

    assert run(limits) == 1
    assert played.topic.published == []
