"""Seeds that once failed, each a file in ``kept/`` with a sentence on what it found."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.simulation.plan import Plan

FOLDER: Final = Path(__file__).parent / "kept"

_WORD: Final = re.compile(r"[a-z0-9]+")
_MOST_WORDS: Final = 8


class Kept(NamedTuple):
    """A seed, or a plan under it, and what it found."""

    seed: int
    plan: Plan | None
    found: str


def write(kept: Kept, folder: Path = FOLDER) -> Path:
    """Write it to a file whose name has the first words of what it found."""
    words = _WORD.findall(kept.found.lower())[:_MOST_WORDS]
    if not words:
        raise ValueError("say what the seed found")
    folder.mkdir(exist_ok=True)
    path = folder / f"{'_'.join(words)}.json"
    values: dict[str, Any] = {"found": kept.found, "seed": kept.seed}
    if kept.plan is not None:
        values["plan"] = kept.plan.to_json()
    path.write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")
    return path


def read(path: Path) -> Kept:
    """Read a file that ``write`` wrote, or a plan alone."""
    values: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    if "horizon_ms" in values:
        plan = Plan.from_json(values)
        return Kept(plan.seed, plan, "")
    given = values.get("plan")
    return Kept(values["seed"], None if given is None else Plan.from_json(given), values["found"])


def paths(folder: Path = FOLDER) -> list[Path]:
    """Return the files, in the order of their names."""
    return sorted(folder.glob("*.json"))
