"""Throttles responses exactly as tests of Kafka clients ask for it.

orders      which responses each order is for
session     the session that throttles them, of each connection with ``testing: true``
observed    the last throttled responses, and all clients

Nothing here does I/O.
"""
