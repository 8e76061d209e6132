"""The HTTP port of operators: health, ``/metrics``, ``/quotas`` and ``/callqueue``."""
