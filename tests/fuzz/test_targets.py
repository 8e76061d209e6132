"""The short fuzz run.

Each target runs on its corpus, on fifty fixed mutations of the corpus, and on random inputs of hypothesis. In
``make test-long`` it also runs on inputs that libFuzzer finds in a few seconds.
"""

import platform
import subprocess
import sys
import time
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_quota_proxy.config.model import DEFAULT, QuotaRule
from kafka_quota_proxy.protocol.api import ApiKey
from tests.fuzz import corpus, seeds
from tests.fuzz.dialogue import Stage, frames_in
from tests.fuzz.source import Source, cut, damaged
from tests.fuzz.targets import TARGETS
from tests.protocol.support import kafka_python_messages, kio_messages
from tests.support.frames import produce_request
from tests.support.wire import Wire

FRESH_INPUTS = 50
# Processor time for a few dozen frames of up to a megabyte. Even a slow machine needs a hundredth of this time.
MAX_SECONDS_PER_INPUT = 3.0


def play(target: str, inputs: list[bytes]) -> int:
    """Run a target on the inputs, and return the number of frames."""
    frames = 0
    for one in inputs:
        started = time.process_time()
        try:
            frames += TARGETS[target].run(one)
        except BaseException as error:
            error.add_note(f"the input: bytes.fromhex({one.hex()!r})")
            raise
        assert time.process_time() - started < MAX_SECONDS_PER_INPUT, one.hex()
    return frames


@pytest.mark.parametrize("target", TARGETS)
def test_the_kept_corpus_gives_answers_or_closed_connections(target: str) -> None:
    inputs = corpus.kept(target)

    assert len(inputs) >= 10
    assert play(target, inputs) >= len(inputs)


@pytest.mark.parametrize("target", TARGETS)
def test_mutated_corpus_gives_answers_or_closed_connections(target: str) -> None:
    random = Random(target)  # noqa: S311 - the same inputs in each run
    kept = corpus.kept(target) + corpus.first(target)

    assert play(target, [corpus.mutated(kept, random) for _ in range(FRESH_INPUTS)]) >= FRESH_INPUTS


@pytest.mark.parametrize("target", TARGETS)
@given(data=st.binary(max_size=300))
def test_any_bytes_give_answers_or_closed_connections(target: str, data: bytes) -> None:
    TARGETS[target].run(data)


@pytest.mark.kafka
@pytest.mark.skipif(platform.machine() != "x86_64", reason="atheris has wheels for x86-64 only")
def test_libfuzzer_finds_nothing_in_some_seconds() -> None:
    run = subprocess.run(
        [sys.executable, "-m", "tests.fuzz", "dialogue_rewriting", "responses", "--frames=20000"],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )

    assert run.returncode == 0, run.stdout
    table = [line.split("|")[1:-1] for line in run.stdout.splitlines() if line.startswith("|")][2:]
    assert [row[0].strip() for row in table] == ["dialogue_rewriting", "responses", "all"]
    assert int(table[-1][1].replace(",", "")) >= 20_000
    for row in table[:-1]:
        assert int(row[3].replace(",", "")) > 100, f"{row[0]} reaches next to nothing: is it instrumented?"


def test_session_with_many_throttled_requests_comes_to_rest() -> None:
    rule = QuotaRule(client_id=DEFAULT, producer_byte_rate=0.5, request_percentage=0.5)
    stage = Stage(Wire(rule, max_throttle_time_ms=25_000))
    stage.from_client([produce_request()] * 200)

    stage.finish()

    assert frames_in(stage.asked) == frames_in(stage.told) == 200
    stage.close()


# -- the first inputs of the fuzzer


def test_seeds_have_each_api_and_version_of_the_codecs() -> None:
    known = set(kio_messages.api_versions())
    known |= {(cls.API_KEY, version) for cls, version in kafka_python_messages.messages("request")}

    assert {key for key, _ in known} <= set(seeds.API_KEYS) >= set(map(int, ApiKey))
    for key, version_number in known:
        assert version_number < seeds.versions(key)
        for variant in range(seeds.VARIANTS):
            frame = seeds.request(key, version_number, variant, 0)
            assert int.from_bytes(frame[4:6]) == key
            assert int.from_bytes(frame[6:8]) == version_number
            for one in (frame, seeds.response(key, version_number, variant)):
                assert int.from_bytes(one[:4]) == len(one) - 4


@given(frame=st.binary(min_size=4, max_size=100), data=st.binary(max_size=40))
def test_pieces_of_a_frame_are_the_frame(frame: bytes, data: bytes) -> None:
    pieces = cut(frame, Source(data))

    assert b"".join(pieces) == frame
    assert all(pieces)


@given(frame=st.binary(min_size=4, max_size=100), data=st.binary(max_size=40))
def test_damage_is_the_same_each_time_and_bounded(frame: bytes, data: bytes) -> None:
    out = damaged(frame, Source(data))

    assert out == damaged(frame, Source(data))
    assert len(out) <= len(frame) + 4 * 64 + 16
