"""The log of a long run, by which it goes on where it was stopped.

The sums of several runs are those of one if all had the same proxy. The checks may have been corrected between two of
them: then the seeds that had failed are run again, and count only if they pass.
"""

import hashlib
import json
from collections import Counter
from pathlib import Path
from typing import Final

from tests.simulation.outcome import Outcome
from tests.simulation.progress import Totals

_REPOSITORY: Final = Path(__file__).parents[2]
_ROOMS: Final = ("config", "protocol", "proxy")


class NotALogError(Exception):
    """The file is not one that ``RunLog`` has written."""


class RunLog:
    """What was run so far, in a file of JSON.

    Attributes:
        runs: How many runs have taken part, with this one.
        seconds: The real time of the runs, as it was last written.
        again: Seeds still to be run first: those that had failed, and those that were not at their end.
        next_seed: The first seed after those. None if no run has been before.
    """

    def __init__(self, path: Path, totals: Totals) -> None:
        """Read the file, if there is one, and add its sums to ``totals``. A file of another proxy begins anew.

        Raises:
            NotALogError: The file is of something else.
        """
        self._path = path
        self._totals = totals
        self._proxy = digest_of_proxy()
        self._given: dict[int, None] = {}
        self._failed: list[int] = []
        self.runs, self.seconds = 1, 0.0
        self.again: list[int] = []
        self.next_seed: int | None = None
        try:
            known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
            self.is_anew = bool(known) and known["proxy"] != self._proxy
        except (ValueError, KeyError, TypeError) as error:
            raise NotALogError(f"{path} is not the log of a run; name another file") from error
        if not known or self.is_anew:
            return
        totals.seeds, totals.steps, totals.simulated_ms = known["seeds"], known["steps"], known["simulated_ms"]
        totals.faults.update(Counter(known["faults"]))
        totals.states |= set(known["states"])
        self.runs, self.seconds = known["runs"] + 1, known["seconds"]
        self.again, self.next_seed = known["again"], known["next_seed"]

    def given(self, seed: int) -> None:
        """Note that a seed is going to be run."""
        self._given[seed] = None
        if seed in self.again:
            self.again.remove(seed)
            return
        self.next_seed = max(seed + 1, self.next_seed or 0)

    def add(self, outcome: Outcome) -> None:
        """Count a seed. One that has failed does not count until it passes."""
        self._given.pop(outcome.seed, None)
        if outcome.violation is None:
            self._totals.add(outcome)
        else:
            self._totals.findings += 1
            self._failed.append(outcome.seed)

    def write(self, seconds: float) -> None:
        """Replace the file. All runs have taken ``seconds`` of real time."""
        totals = self._totals
        known = {
            "proxy": self._proxy,
            "runs": self.runs,
            "seconds": seconds,
            "seeds": totals.seeds,
            "steps": totals.steps,
            "simulated_ms": totals.simulated_ms,
            "faults": totals.faults,
            "states": sorted(totals.states),
            "again": [*self._failed, *self._given, *self.again],
            "next_seed": self.next_seed,
        }
        draft = self._path.with_suffix(".draft")
        draft.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
        draft.replace(self._path)


def digest_of_proxy() -> str:
    """Return a digest of all the proxy's modules."""
    digest = hashlib.sha256()
    for room in _ROOMS:
        for path in sorted((_REPOSITORY / room).rglob("*.py")):
            digest.update(str(path.relative_to(_REPOSITORY)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]
