"""One client's connection, without I/O and without a clock.

session          the interface of the shell: bytes and the time in, bytes and the time to wake out
request_stream   from the client to the broker: which requests pass
response_stream  and back: which response answers what
handlers/        one for each family of APIs
in_flight        requests that have no response yet
bucket_turn      the line of a bucket that owes
broker_turn      the fair call queue, refusals, and the broker's time
client_account   the client's identity, buckets and mute
"""

from kafka_quota_proxy.proxy.session.session import Session

__all__ = ["Session"]
