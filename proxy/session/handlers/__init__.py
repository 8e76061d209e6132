"""One handler for each family of APIs: it decides on a request and on its response. No I/O, no clock.

table            which API has which handler
produce          Produce
fetch            Fetch and ShareFetch of consumers
follower_fetch   Fetch of followers
login            SaslHandshake, SaslAuthenticate and bare tokens
topic_mutations  CreateTopics, CreatePartitions, DeleteTopics
quota_requests   DescribeClientQuotas, AlterClientQuotas
api_versions     ApiVersions
other            all others
"""
