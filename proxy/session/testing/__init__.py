"""Throttles and delays responses, or answers with errors, exactly as tests of Kafka clients ask for it.

effects     what an order does to a response
orders      which responses each order is for
requests    answers requests with errors in place of the broker
responses   throttles, delays and edits the broker's responses
session     the session that does both, of each connection with ``testing: true``
observed    the last responses that were throttled or asked for

Nothing here does I/O.
"""
