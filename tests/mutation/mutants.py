"""Draws mutants of a package, and tells whether its unit tests notice them."""

import os
import random
import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from cosmic_ray.commands.init import init
from cosmic_ray.mutating import mutate_and_test
from cosmic_ray.work_db import WorkDB, use_db
from cosmic_ray.work_item import MutationSpec, TestOutcome

REPOSITORY: Final = Path(__file__).parents[2]
# The packages that decide: they do no I/O, and their unit tests alone must show that they are right.
ROOMS: Final = ("protocol", "proxy/quota", "proxy/session", "proxy/rules", "proxy/fair_queue")
# What a person gets wrong: a number by one, a comparison, a sign, a condition, an end too early. One of each kind is
# enough: `<` becomes `<=`, but not also `!=`.
OPERATORS: Final = frozenset(
    f"core/{name}"
    for name in (
        "AddNot", "NumberReplacer", "ReplaceAndWithOr", "ReplaceOrWithAnd", "ReplaceBreakWithContinue",
        "ReplaceContinueWithBreak", "ReplaceTrueWithFalse", "ReplaceFalseWithTrue", "ZeroIterationForLoop",
        "ReplaceComparisonOperator_Lt_LtE", "ReplaceComparisonOperator_LtE_Lt", "ReplaceComparisonOperator_Gt_GtE",
        "ReplaceComparisonOperator_GtE_Gt", "ReplaceComparisonOperator_Eq_NotEq", "ReplaceComparisonOperator_NotEq_Eq",
        "ReplaceComparisonOperator_Is_IsNot", "ReplaceComparisonOperator_IsNot_Is", "ReplaceBinaryOperator_Add_Sub",
        "ReplaceBinaryOperator_Sub_Add", "ReplaceBinaryOperator_Mul_Div", "ReplaceBinaryOperator_Div_Mul",
        "ReplaceBinaryOperator_FloorDiv_Div", "ReplaceBinaryOperator_Mod_FloorDiv",
    )
)  # fmt: skip
# A run of all tests of a package takes less than half of this.
_TIMEOUT_S: Final = 300
_CONSTANT: Final = re.compile(r"_?[A-Z][A-Z0-9_]*\b.* = ")
_NOT_COPIED: Final = (".git", ".venv", "build", "site", "*cache*", "__pycache__")


class Verdict(NamedTuple):
    """What came of one mutant. ``change`` is the line before and after."""

    module: str
    line: int
    change: tuple[str, str]
    is_noticed: bool


def drawn(room: str, count: int, seed: int) -> list[MutationSpec]:
    """Return ``count`` mutants of a package, drawn at random among all. Paths are relative to the repository.

    Constants stay as they are: whether a time is 1,000 or 999 ms is a choice, which tests should not repeat.
    """
    modules = sorted(path for path in (REPOSITORY / room).rglob("*.py") if path.name != "__init__.py")
    with use_db(":memory:", WorkDB.Mode.create) as work:
        init([path.relative_to(REPOSITORY) for path in modules], work, {})
        mutants = [item.mutations[0] for item in work.work_items if item.mutations[0].operator_name in OPERATORS]
    lines = {path.relative_to(REPOSITORY): path.read_text(encoding="utf-8").splitlines() for path in modules}
    mutants = [one for one in mutants if not _CONSTANT.match(lines[one.module_path][one.start_pos[0] - 1])]
    mutants.sort(key=lambda one: (one.module_path, one.start_pos, one.operator_name, one.occurrence))
    return random.Random(seed).sample(  # noqa: S311 - a draw that can be repeated
        mutants, min(count, len(mutants))
    )


def enter_copy(folder: str) -> None:
    """Work in a copy of the repository from now on, in which modules can be changed."""
    copy = Path(folder) / str(os.getpid())
    shutil.copytree(REPOSITORY, copy, symlinks=True, ignore=shutil.ignore_patterns(*_NOT_COPIED))
    os.chdir(copy)
    os.environ["PYTHONPATH"] = str(copy)


def verdict(mutant: MutationSpec) -> Verdict:
    """Run the module's own tests with a mutant, and then those of its package, until one fails."""
    result = mutate_and_test([mutant], command(mutant.module_path), _TIMEOUT_S)
    if result.test_outcome is TestOutcome.INCOMPETENT:
        raise RuntimeError(f"{mutant}: {result.output}")
    lines = (result.diff or "").splitlines()
    before, after = (
        next((line[1:].strip() for line in lines if line[:1] == sign and line[:3] != sign * 3), "") for sign in "-+"
    )
    is_noticed = result.test_outcome is TestOutcome.KILLED
    return Verdict(str(mutant.module_path), mutant.start_pos[0], (before, after), is_noticed)


def command(module: Path) -> str:
    """Return the command that runs the tests of a module and those beside them."""
    folder = Path("tests") / module.parent
    own = folder / f"test_{module.stem.strip('_')}.py"
    found: Sequence[Path] = [path for path in (own, folder) if path.exists()]
    options = "-m pytest -x -q -p no:xdist -p no:cacheprovider --timeout 60 --no-header"
    return f"{sys.executable} {options} {' '.join(map(str, found))}"
