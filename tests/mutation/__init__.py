"""Do the unit tests bite? Mutants of the deciding packages must make them fail: ``python -m tests.mutation``."""
