"""What ``balance`` is asked for, and what its stream writes first. Itself: tests/end_to_end/test_balance_follow.py."""

from pathlib import Path

import pytest

from config.model import ProxyConfig, QuotaRule
from config.quota_record import Rule, Share
from pipeline.__main__ import main
from pipeline.balancer import Balancer, Bucket, Moved, Publication, Terms
from pipeline.commands import following
from pipeline.quota_topic import Found

TO = "kafka://127.0.0.1:1/quotas"
USAGE = "kafka://127.0.0.1:1/usage"


@pytest.fixture
def limits(tmp_path: Path) -> str:
    path = tmp_path / "cluster.yaml"
    path.write_text("quotas: [{user: alice, producer_byte_rate: 3MB}]\n", encoding="utf-8")
    return str(path)


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
        (["--usage", USAGE, "--follow", "--to", TO, "--proxies", "a", "--lease", "2h"], "at most 1h"),
    ],
)
def test_what_cannot_be_is_said_before_spark_starts(
    words: list[str], said: str, limits: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["balance", "--limits", limits, *words]) == 2

    assert said in capsys.readouterr().err


def test_a_limit_that_is_wrong_is_said_with_its_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
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


def test_what_was_left_in_the_topic_goes_before_the_first_news_and_what_is_right_stays() -> None:
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

    assert list(following._first(one, found)) == [
        Share(proxy="a", user="alice"),
        Rule(client_id="gone"),
        Rule(user="bob", limits={"producer_byte_rate": 10.0}),
    ]


def test_it_says_who_has_what_and_of_many_some(capsys: pytest.CaptureFixture[str]) -> None:
    moved = [
        Moved(Bucket("produce", "alice", "\x1b[2J"), {"a": 2_000_000, "b": 30_000}),
        Moved(Bucket("fetch", "", "etl"), {}),
        *(Moved(Bucket("fetch", "", f"c{number}"), {"a": 1}) for number in range(10)),
    ]

    following._tell(Publication([], moved), balancer())

    lines = [line.partition(" ")[2] for line in capsys.readouterr().err.splitlines()]
    assert lines[0] == r"'alice / \x1b[2J', produce: a 2 MB/s, b 30 kB/s"
    assert lines[1] == "etl, fetch: even shares again"
    assert lines[5:] == ["and shares of 7 more"]
