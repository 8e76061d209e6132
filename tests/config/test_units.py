"""Tests sizes, rates, numbers and durations as operators write them."""

import math
from collections.abc import Callable
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_quota_proxy.config.addresses import parse_address
from kafka_quota_proxy.config.errors import UnitError
from kafka_quota_proxy.config.model import Address
from kafka_quota_proxy.config.units import (
    UNLIMITED,
    described_size,
    parse_duration_ms,
    parse_number,
    parse_rate,
    parse_size,
    written_rate,
)
from tests.support.cases import each_case


@each_case(
    "written, size_bytes",
    [
        (0, 0),
        (1500, 1_500),
        ("1500", 1_500),
        ("1B", 1),
        ("10kB", 10_000),
        ("10KB", 10_000),
        ("10KiB", 10_240),
        ("10MB", 10_000_000),
        ("10MiB", 10_485_760),
        ("10 MiB", 10_485_760),
        ("2GB", 2_000_000_000),
        ("2GiB", 2_147_483_648),
        ("1TB", 10**12),
        ("1TiB", 2**40),
        ("1.5MiB", 1_572_864),
        (1.0e6, 1_000_000),
    ],
)
def test_a_size_takes_powers_of_1000_and_of_1024(written: str | float, size_bytes: int) -> None:
    assert parse_size(written) == size_bytes


@each_case(
    "written, hint",
    [
        ("10mib", "did you mean MiB?"),
        ("10m", "did you mean MB or MiB?"),
        ("10M", "did you mean MB or MiB?"),
        ("10Mbit", "'Mbit' is not a unit"),
        ("ten", "'ten' is not a size"),
        ("1e6", "'1e6' is not a size"),
        ("", "'' is not a size"),
        ("MiB", "'MiB' is not a size"),
        ("-1MB", "cannot be negative"),
        ("0.1B", "not a whole number of bytes"),
        (float("inf"), "must be finite"),
        (float("nan"), "must be finite"),
        ("１０MB", "is not a size"),
    ],
)
def test_a_text_that_is_no_size_is_refused_with_a_remedy(written: str | float, hint: str) -> None:
    with pytest.raises(UnitError, match=hint.replace("?", r"\?")):
        parse_size(written)


@pytest.mark.parametrize("parse", [parse_size, parse_rate, parse_duration_ms])
@pytest.mark.parametrize(
    "written", ["9" * 1_100_000, f"0.{'0' * 1_100_000}1", f"{'9' * 1_100_000}h", 1 << 20_000], ids=range(4)
)
def test_a_quantity_of_a_million_digits_is_refused(parse: Callable[[str | float], float], written: str | int) -> None:
    with pytest.raises(UnitError, match="are too long for"):
        parse(written)


@given(st.integers(0, 10**18), st.sampled_from(["", "B", "kB", "KiB", "MB", "MiB"]))
def test_a_size_is_number_times_unit(number: int, unit: str) -> None:
    assert parse_size(f"{number}{unit}") == number * parse_size(f"1{unit}")


@given(st.text(max_size=30))
def test_any_text_is_a_quantity_or_a_unit_error(text: str) -> None:
    for parse in (parse_size, parse_rate, parse_duration_ms, parse_address):
        try:
            value = parse(text)
        except UnitError:
            continue
        assert isinstance(value, Address) or value >= 0


@each_case("written", ["10MiB", "10MiB/s", "10 MiB / s".replace(" ", ""), 10_485_760])
def test_a_rate_may_end_with_per_second(written: str | int) -> None:
    assert parse_rate(written) == 10_485_760.0


@each_case(
    "written, described",
    [
        ("1MB", "1000000 bytes (1 MB)"),
        ("1MB/s", "1000000 bytes (1 MB)"),
        ("1000kB", "1000000 bytes (1000 kB)"),
        ("512kB", "512000 bytes (512 kB)"),
        ("500KiB", "512000 bytes (500 KiB)"),
        ("0.5 GiB", "536870912 bytes (0.5 GiB)"),
        ("10GB", "10000000000 bytes (10 GB)"),
        (1_048_576, "1048576 bytes (1 MiB)"),
        (512_000, "512000 bytes (500 KiB)"),
        (128_000, "128000 bytes (128 kB)"),
        (500e6, "500000000 bytes (500 MB)"),
        (500, "500 bytes"),
        ("1234567", "1234567 bytes (1.235 MB)"),
        ("999B", "999 bytes"),
        (0.5, "0 bytes"),
    ],
)
def test_a_rate_is_described_in_the_unit_in_which_it_was_written(written: str | float, described: str) -> None:
    assert described_size(parse_rate(written)) == described


def test_a_measured_rate_has_the_kind_of_unit_of_its_limit() -> None:
    given: list[tuple[float, str | float]] = [
        (999_424.5, "1MB"),
        (999_424.5, "1MiB"),
        (1_010.0, "2KiB"),
        (1_010.0, "2kB"),
        (999_424.5, 1_048_576),
    ]

    assert [described_size(rate, like=parse_rate(limit)) for rate, limit in given] == [
        "999424 bytes (999.4 kB)",
        "999424 bytes (976 KiB)",
        "1010 bytes",
        "1010 bytes (1.01 kB)",
        "999424 bytes (976 KiB)",
    ]


@given(
    st.decimals(0, 10**6, places=3).filter(bool),
    st.sampled_from(["", "B", "kB", "MB", "GB", "TB", "KiB", "MiB", "GiB", "TiB"]),
)
def test_a_rate_is_written_so_that_it_is_read_back(number: Decimal, unit: str) -> None:
    rate = parse_rate(f"{number}{unit}")
    assert parse_rate(written_rate(float(rate))) == rate
    again = parse_rate(written_rate(rate))
    assert again == rate
    assert again.unit == unit or not unit


@each_case("written, hint", [(0, "above 0"), ("0MB", "above 0"), (-5, "negative"), (2**64, "at most")])
def test_a_rate_is_above_zero_and_within_kafkas_int64(written: str | int, hint: str) -> None:
    with pytest.raises(UnitError, match=hint):
        parse_rate(written)


def test_kafkas_value_for_no_quota_is_a_rate() -> None:
    assert parse_rate(UNLIMITED) == float(UNLIMITED)


@each_case(
    "written, duration_ms",
    [("500ms", 500), ("30s", 30_000), ("5m", 300_000), ("1h", 3_600_000), ("1.5s", 1_500), ("0s", 0)],
)
def test_a_duration_is_whole_milliseconds(written: str, duration_ms: int) -> None:
    assert parse_duration_ms(written) == duration_ms


@each_case("written", [30, "30", 1.5])
def test_a_duration_without_a_unit_is_refused(written: str | float) -> None:
    with pytest.raises(UnitError, match="has no unit"):
        parse_duration_ms(written)


@each_case("written", ["-1s", "1d", "1.5ms", "s", "5MB"])
def test_invalid_durations_are_refused(written: str) -> None:
    with pytest.raises(UnitError):
        parse_duration_ms(written)


@each_case("written, number", [(50, 50.0), ("0.5", 0.5), (2_147_483_647, 2_147_483_647.0), (1e-9, 1e-9)])
def test_a_number_without_a_unit_is_parsed(written: str | float, number: float) -> None:
    assert parse_number(written, kind="a request rate", example="100") == number


@each_case(
    "written, hint",
    [
        (0, "a request rate must be above 0"),
        ("0." + "0" * 400 + "1", "a request rate must be above 0"),
        (-1, "cannot be negative"),
        ("100/s", "is not a request rate; write a number such as 100"),
        ("10k", "'k' is not a unit of request rate; write a number such as 100"),
        (2_147_483_648, "a request rate is at most 2147483647"),
        ("9" * 4_000, "a request rate is at most"),
        (math.nan, "must be finite"),
    ],
)
def test_an_invalid_number_is_refused_with_a_reason(written: str | float, hint: str) -> None:
    with pytest.raises(UnitError, match=hint):
        parse_number(written, kind="a request rate", example="100")


def test_0_is_accepted_where_allowed() -> None:
    assert parse_number("0.0", kind="a connection rate", example="5", allows_0=True) == 0.0
    with pytest.raises(UnitError, match="above 0"):
        parse_number("0." + "0" * 400 + "1", kind="a connection rate", example="5", allows_0=True)
