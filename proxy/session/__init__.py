"""Decides what is forwarded on one client's connection, and when. No I/O, no clock.

A bucket records the usage of one entity (a user, a client-id, or both) and applies the limit on it. The requests that
wait until a bucket has room form its line. While a client is muted, none of its requests is forwarded. The fair call
queue limits how many requests the broker gets at a time.

session          the interface to the server, which hands over bytes and the time, and does all I/O
request_stream   decides which of the client's requests are forwarded to the broker
response_stream  matches the broker's responses with the requests, and charges and edits them
handlers/        one handler for each family of APIs
in_flight        the requests that have no response yet
bucket_turn      the place of the connection in the line of a bucket
broker_turn      the connection's place in the fair call queue, and the time that the broker takes for each request
client_account   the client's identity, its buckets, and how long it is muted
"""

from kafka_quota_proxy.proxy.session.session import Session

__all__ = ["Session"]
