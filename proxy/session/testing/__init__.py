"""Throttles and delays responses on demand, or answers with errors, so that tests of Kafka clients meet exactly that.

effects     what an order does to a response
orders      which responses each order is for
requests    answers requests with errors in place of the broker
responses   throttles, delays and edits the broker's responses
observed    the responses that tests can read of

Nothing here does I/O.
"""
