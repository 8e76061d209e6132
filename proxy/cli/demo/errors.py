"""Errors that stop the demo. Each message says what to do."""


class DemoError(Exception):
    """The demo cannot continue."""


class MeasurementError(DemoError):
    """There is not enough traffic for a rate."""
