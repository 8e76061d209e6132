"""Each break fits its file, and a run of all breaks says which are found."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.simulation.bites import mutate
from tests.simulation.bites.bite import Bite, copy_of
from tests.simulation.bites.breaks import BREAKS
from tests.simulation.bites.command import main
from tests.simulation.bites.model import REPOSITORY, Break, BreakError, applied
from tests.simulation.bites.report import report
from tests.simulation.themes import THEMES

ROOMS = (
    "proxy/server", "proxy/session", "proxy/session/handlers", "proxy/session/replica", "proxy/quota",
    "proxy/fair_queue", "proxy/replication", "proxy/client_quotas", "proxy/usage", "protocol",
)  # fmt: skip

FOUND = Break("it is found", "proxy/quota/throttle.py", "floor(wait_ms", "", "room", theme="followers")
MISSED = Break("it is missed", "proxy/quota/throttle.py", "old", "new", "mutation", why="It | changes\nnothing.")


@pytest.mark.parametrize("one", BREAKS, ids=lambda one: one.name)
def test_break_fits_its_file_and_can_be_compiled(one: Break) -> None:
    broken = applied(one)
    compile(broken, one.file, "exec")
    assert broken != (REPOSITORY / one.file).read_text(encoding="utf-8")


def test_themes_of_breaks_exist() -> None:
    assert {one.theme for one in BREAKS if one.theme} <= set(THEMES)


def test_names_are_unique() -> None:
    assert [name for name, times in Counter(one.name for one in BREAKS).items() if times > 1] == []


@pytest.mark.parametrize("room", ROOMS)
def test_room_has_at_least_three_breaks_drawn_by_hand(room: str) -> None:
    assert sum(one.room == room for one in BREAKS if one.origin != "mutation") >= 3


def test_a_dozen_breaks_are_mutations_and_twenty_are_fixed_bugs() -> None:
    origins = Counter(one.origin for one in BREAKS)
    assert origins["mutation"] >= 12
    assert origins["fixed bug"] >= 20


def test_break_whose_text_has_gone_is_an_error() -> None:
    with pytest.raises(BreakError, match=r"0 times in proxy/quota/throttle\.py"):
        applied(MISSED._replace(old="no such text"))
    with pytest.raises(BreakError, match="2 times"):
        applied(FOUND._replace(old="floor(wait_ms + 0.5)"))


def test_copy_has_what_the_simulation_imports(tmp_path: Path) -> None:
    copy_of(REPOSITORY, tmp_path)
    assert (tmp_path / "kafka_quota_proxy/proxy/quota/bucket.py").resolve() == tmp_path / "proxy/quota/bucket.py"
    assert (tmp_path / "tests/simulation/outcome.py").exists()


def test_mutations_are_drawn_by_their_seed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = []
    for seed in (1, 1, 2):
        monkeypatch.setattr(mutate, "KEPT", tmp_path / "mutations.json")
        mutate.draw(5, seed)
        drawn.append(mutate.kept())
    assert drawn[0] == drawn[1] != drawn[2]
    assert len({one.file for one in drawn[0]}) == 5
    for one in (*drawn[0], *drawn[2]):
        compile(applied(one), one.file, "exec")


def bite_of(one: Break, check: str) -> Bite:
    return Bite(one.name, check, "text", seeds=3, steps=4_000, seconds=1.25)


def test_report_has_what_was_found_and_why_the_rest_was_not() -> None:
    bites = {FOUND.name: bite_of(FOUND, "quota bounds"), MISSED.name: bite_of(MISSED, "")}
    text = report([FOUND, MISSED], bites, steps=1_000_000)
    assert "**1 of 2 were found**: 0 with the seeds of all themes, 1 with those of one." in text
    assert "| it is missed | proxy/quota | It \\| changes nothing. |" in text
    assert "| it is found | proxy/quota | room | followers | quota bounds | 4,000 | 1.2 |" in text
    assert "| proxy/quota | 2 | 1 |" in text


def test_report_does_not_count_what_breaks_no_promise() -> None:
    harmless = MISSED._replace(name="it is slow", why="Nobody waits.", is_harmless=True)
    bites = {FOUND.name: bite_of(FOUND, "quota bounds"), harmless.name: bite_of(harmless, "")}
    text = report([FOUND, harmless], bites, steps=1_000_000)
    assert "**1 of 1 were found**" in text
    assert "1 other breaks keep every promise" in text
    assert "## Keep every promise\n\n| break | room | why |\n|---|---|---|\n| it is slow | proxy/quota | Nob" in text
    assert "## Not found" not in text


def run_with(*found: str, unbroken: str = "", breaks: Sequence[Break] = ()) -> list[str]:
    """Run the command on ``breaks``, or on four real ones. Those with names in ``found`` are found."""
    said: list[str] = []

    def run(one: Break | None, *, steps: int, theme: str = "") -> Bite:
        said.append(f"unbroken {theme}".strip() if one is None else one.name)
        if one is None:
            return Bite("nothing", unbroken, "", 1, steps, 1.0)
        return bite_of(one, "quota bounds" if one.name in found else "")

    said.append(str(main(breaks or BREAKS[:4], ["--only", "proxy", "--jobs", "1"], run)))
    return said


def test_status_tells_whether_enough_is_found(capsys: pytest.CaptureFixture[str]) -> None:
    names = [one.name for one in BREAKS[:4]]
    assert run_with(*names) == ["unbroken", "unbroken many consumers", *names, "0"]
    assert "found 4 of 4" in capsys.readouterr().out
    assert run_with(*names[:3])[-1] == "1"
    assert f"nothing says why:\n  {names[3]}" in capsys.readouterr().out


def test_harmless_break_that_is_found_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    breaks = [BREAKS[0], BREAKS[1]._replace(is_harmless=True)]
    names = [one.name for one in breaks]
    assert run_with(names[0], breaks=breaks)[-1] == "0"
    assert "found 1 of 1" in capsys.readouterr().out
    assert run_with(*names, breaks=breaks)[-1] == "1"
    assert f"should break no promise:\n  {names[1]}" in capsys.readouterr().out


def test_nothing_is_broken_while_the_unbroken_proxy_fails_with_the_same_seeds() -> None:
    assert run_with(unbroken="quota bounds", breaks=BREAKS[:1]) == ["unbroken", "1"]
    breaks = [one for one in BREAKS if one.theme == "followers"][:2]
    assert run_with(unbroken="liveness", breaks=breaks) == ["unbroken", "unbroken followers", "1"]


def test_log_spares_what_was_run(tmp_path: Path) -> None:
    log = tmp_path / "bites.jsonl"
    log.write_text(bite_of(BREAKS[0], "quota bounds").to_json() + "\n", encoding="utf-8")
    ran: list[str] = []

    def run(one: Break | None, *, steps: int, theme: str = "") -> Bite:
        ran.append(one.name if one is not None else theme)
        return bite_of(one, "x") if one is not None else Bite("nothing", "", "", 1, steps, 1.0)

    arguments = ["--only", "proxy", "--jobs", "1", "--log", str(log)]
    assert main(BREAKS[:2], arguments, run) == 0
    assert ran == ["", BREAKS[1].name]
    assert len(log.read_text(encoding="utf-8").splitlines()) == 2
