"""Errors that stop the demo. Each message says what to do.

::

    DemoError
    ├── MissingExtraError     confluent-kafka, aiokafka or rich is not installed
    ├── LibraryError          librdkafka's file was not found, or it lacks the mock cluster
    ├── ProcessError          the broker or the proxy did not start, or ended early
    ├── ClientError           a client failed, or never got going
    └── MeasurementError      too little was seen to speak of a rate
"""

from __future__ import annotations


class DemoError(Exception):
    """The demo cannot continue."""


class MissingExtraError(DemoError):
    """A package of the extra ``demo`` is not installed."""


class LibraryError(DemoError):
    """librdkafka cannot be used through ctypes here."""


class ProcessError(DemoError):
    """A process of the demo did not start or ended early."""


class ClientError(DemoError):
    """The producer or the consumer failed."""


class MeasurementError(DemoError):
    """There is not enough traffic for a rate."""
