"""Draws mutations of the product by a seed: a comparison turned round, a statement dropped, an operator exchanged.

The drawn mutations are kept in ``mutations.json`` as breaks, so that a later change of the product leaves them as they
are. Whoever draws anew reads each of them. One that changes nothing, or code that no simulated world runs, is taken
out. One that a simulated world does not find for another reason gets that in its field ``why``.
"""

import ast
import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Final

from tests.simulation.bites.model import REPOSITORY, Break, applied

KEPT: Final = Path(__file__).parent / "mutations.json"

# What runs for a client's requests. Other modules read files, print or explain.
_FOLDERS: Final = (
    "proxy/session",
    "proxy/session/handlers",
    "proxy/session/replica",
    "proxy/server",
    "proxy/quota",
    "proxy/fair_queue",
    "proxy/replication",
    "proxy/usage",
    "protocol",
)
_SWAPPED: Final[dict[type[ast.AST], str]] = {
    ast.Lt: ">=", ast.LtE: ">", ast.Gt: "<=", ast.GtE: "<", ast.Eq: "!=", ast.NotEq: "==",
    ast.Is: "is not", ast.IsNot: "is", ast.In: "not in", ast.NotIn: "in",
    ast.Add: "-", ast.Sub: "+", ast.Mult: "+", ast.And: "or", ast.Or: "and",
}  # fmt: skip


def kept() -> tuple[Break, ...]:
    """Return the mutations that were drawn."""
    return tuple(Break(**values) for values in json.loads(KEPT.read_text(encoding="utf-8")))


def draw(count: int, seed: int) -> None:
    """Draw mutations, and keep them. Each is in another module."""
    random = Random(seed)
    paths = sorted(path for folder in _FOLDERS for path in (REPOSITORY / folder).glob("*.py"))
    random.shuffle(paths)
    found: list[Break] = []
    for path in paths:
        if len(found) == count:
            break
        mutants = list(_mutants(path))
        random.shuffle(mutants)
        found += next(([one] for one in mutants if _compiles(applied(one))), [])
    known = {(one.file, one.old, one.new): one for one in kept()} if KEPT.exists() else {}
    values = [known.get((one.file, one.old, one.new), one)._asdict() for one in found]
    KEPT.write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")


def _mutants(path: Path) -> Iterator[Break]:
    """Yield the mutations of a module that change lines found nowhere else in it."""
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines(keepends=True)
    file = str(path.relative_to(REPOSITORY))
    for function in ast.walk(ast.parse(text)):
        if not isinstance(function, ast.FunctionDef) or function.name.startswith("__"):
            continue
        for node in ast.walk(function):
            for what, begin, end, new in _changes(node, lines):
                old = "".join(lines[begin:end])
                if text.count(old) == 1:
                    name = f"{what} in {function.name} of {Path(file).stem}: {old.strip().splitlines()[0]}"
                    yield Break(name, file, old, new, "mutation")


def _changes(node: ast.AST, lines: list[str]) -> Iterator[tuple[str, int, int, str]]:
    """Yield changes at a node: in words, the lines from and to, and the new text of these lines."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        begin, end = node.lineno - 1, node.end_lineno or node.lineno
        yield "a call is dropped", begin, end, f"{' ' * node.col_offset}pass\n"
    if isinstance(node, ast.AugAssign):
        begin, end = node.lineno - 1, node.end_lineno or node.lineno
        yield "an addition is dropped", begin, end, f"{' ' * node.col_offset}pass\n"
    pairs: list[tuple[ast.AST, ast.AST, ast.AST]] = []
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        pairs.append((node.left, node.ops[0], node.comparators[0]))
    elif isinstance(node, ast.BinOp):
        pairs.append((node.left, node.op, node.right))
    elif isinstance(node, ast.BoolOp):
        pairs += [(left, node.op, right) for left, right in zip(node.values, node.values[1:], strict=False)]
    for left, operator, right in pairs:
        swapped = _SWAPPED.get(type(operator))
        at = getattr(left, "end_lineno", 0) - 1
        if swapped is None or at != getattr(right, "lineno", 0) - 1:
            continue
        line = lines[at].encode()
        begin, end = getattr(left, "end_col_offset", 0), getattr(right, "col_offset", 0)
        between = line[begin:end].decode()
        if between.strip(" ()") and "#" not in between:
            inner = between.replace(between.strip(" ()"), swapped)
            yield (
                f"{between.strip(' ()')} becomes {swapped}",
                at,
                at + 1,
                line[:begin].decode() + inner + line[end:].decode(),
            )


def _compiles(text: str) -> bool:
    try:
        ast.parse(text)
    except SyntaxError:
        return False
    return True
