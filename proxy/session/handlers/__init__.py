"""Decides how each request and response is forwarded. Each family of APIs has a handler. No I/O, no clock.

handler          the base class of all handlers
table            the handler of each API
produce          handles Produce
fetch            handles Fetch and ShareFetch of consumers
follower_fetch   handles Fetch of followers
login            handles SaslHandshake, SaslAuthenticate and SASL tokens without a Kafka header
topic_mutations  handles CreateTopics, CreatePartitions and DeleteTopics
quota_requests   handles DescribeClientQuotas and AlterClientQuotas
api_versions     handles ApiVersions
other            handles all other APIs
unanswered_only  drops the requests of a drained client that would be answered
whole_request    the base class of handlers that read a request as a whole before they decide
"""
