"""Serves the admin port over HTTP: health checks, ``/metrics``, ``/quotas`` and ``/callqueue``."""
