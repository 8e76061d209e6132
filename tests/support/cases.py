"""Runs many small cases in one test, and limits the number of examples of random tests."""

from collections.abc import Callable, Iterable
from functools import wraps
from inspect import signature

from hypothesis import settings

# For a property test that runs once for each version or codec. It has a tenth of the usual examples. The profile "deep"
# in conftest.py has many more.
FEW_EXAMPLES = settings(max_examples=max(settings().max_examples // 10, 5))
# The seeds of random messages, for each version or codec.
SEEDS = range(settings().max_examples // 33)
# For a property whose examples are long.
A_THIRD = settings(max_examples=settings().max_examples // 3)

_Test = Callable[..., None]


def each_case(names: str, cases: Iterable[object]) -> Callable[[_Test], _Test]:
    """Run a test with each case, as ``pytest.mark.parametrize`` does, but as one test.

    The first failure ends the test. A note of its exception names the case.

    Args:
        names: The test's parameters, separated by commas.
        cases: A tuple of values for each case, or the value itself if there is only one parameter.
    """
    parameters = [name.strip() for name in names.split(",")]
    rows = [dict(zip(parameters, (case,) if len(parameters) == 1 else case, strict=True)) for case in cases]  # type: ignore[call-overload]
    assert rows, f"no cases for {names}"

    def decorate(test: _Test) -> _Test:
        @wraps(test)
        def loop(**fixtures: object) -> None:
            for row in rows:
                try:
                    test(**fixtures, **row)
                except BaseException as error:
                    error.add_note("case: " + ", ".join(f"{name}={value!r}" for name, value in row.items()))
                    raise

        whole = signature(test)
        kept = [parameter for name, parameter in whole.parameters.items() if name not in parameters]
        loop.__signature__ = whole.replace(parameters=kept)  # type: ignore[attr-defined]
        return loop

    return decorate
