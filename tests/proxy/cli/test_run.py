"""Tests how the limit of open files is raised. What else ``run`` does is tested in ``tests/end_to_end``."""

import resource

import pytest

from kafka_quota_proxy.proxy.cli.run import _raise_file_limit

_LINUX_MOST = 1_048_576
_MACOS_MOST = 10_240
_MACOS_UNLIMITED = (1 << 63) - 1


@pytest.mark.parametrize(
    ("soft", "hard", "most", "raised"),
    [
        (1_024, 4_096, _LINUX_MOST, 4_096),
        (4_096, 4_096, _LINUX_MOST, 4_096),
        (256, _MACOS_UNLIMITED, _MACOS_MOST, _MACOS_MOST),
        (256, 4_096, _MACOS_MOST, 4_096),
        (20_000, _MACOS_UNLIMITED, _MACOS_MOST, 20_000),
        (256, 1_024, 256, 256),
    ],
)
def test_limit_of_open_files_is_raised_as_far_as_the_system_allows(
    soft: int, hard: int, most: int, raised: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = (soft, hard)

    def setrlimit(_: int, wanted: tuple[int, int]) -> None:
        nonlocal limits
        if wanted[0] > most:
            raise ValueError("current limit exceeds maximum limit")
        limits = wanted

    monkeypatch.setattr(resource, "getrlimit", lambda _: limits)
    monkeypatch.setattr(resource, "setrlimit", setrlimit)

    _raise_file_limit()

    assert limits == (raised, hard)
