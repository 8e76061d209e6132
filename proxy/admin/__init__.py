"""Serves the admin port over HTTP: health checks, metrics, quotas, and the users' levels in the fair call queues."""
