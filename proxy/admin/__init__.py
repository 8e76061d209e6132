"""The admin port over HTTP: health, ``/metrics``, ``/quotas`` and ``/callqueue``."""
