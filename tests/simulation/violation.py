"""The failure of a seed."""


class Violation(AssertionError):  # noqa: N818 - it is what a check has found, not an error of the program
    """A promise was broken. ``check`` names the promise."""

    def __init__(self, check: str, text: str) -> None:
        super().__init__(f"{check}: {text}")
        self.check = check
        self.text = text

    def __reduce__(self) -> tuple[type["Violation"], tuple[str, str]]:
        """Pickle it by what made it, since it goes from one process to another."""
        return Violation, (self.check, self.text)
