"""The files that ``capacity`` writes about limits. tests/pipeline/test_main.py tests how limits are computed."""

import pytest

from kafka_quota_proxy.config.load import load_bytes
from kafka_quota_proxy.config.model import Shaping
from kafka_quota_proxy.pipeline.__main__ import parser
from kafka_quota_proxy.pipeline.capacity import Suggestion
from kafka_quota_proxy.pipeline.commands.capacity import quotas_text, step_text

WORDS = ["capacity", "--usage", "usage", "--out", "plan"]


@pytest.mark.parametrize(
    ("words", "shaping"), [([], Shaping.SAMPLED), (["--shaping", "paced"], Shaping.PACED)], ids=["default", "paced"]
)
def test_limits_keep_the_shaping_of_the_replay(words: list[str], shaping: Shaping) -> None:
    args = parser("capacity").parse_args([*WORDS, *words])
    suggested = [Suggestion("produce", "alice", "etl", 1_000, 5_000, 100, 2_000, "")]

    for text in (quotas_text(suggested, args), step_text(1, suggested, args)):
        config = load_bytes(text.encode(), file="quotas.yaml").config
        assert config.shaping is shaping
        assert [rule.limits.get("producer_byte_rate") for rule in config.quotas] == [2_000.0]
