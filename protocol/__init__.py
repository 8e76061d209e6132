"""Reads and writes Kafka's wire format, as far as the proxy needs it.

The modules use only the standard library, do no I/O and read no clock. They step over the records in a frame and
do not copy them, so the time that a frame takes does not grow with its records.

    errors             the errors that a peer's bytes can cause
    primitives         reads or steps over integers, strings, arrays and tags
    api                the keys, versions and header versions of Kafka's APIs
    header             reads the size and the header of a frame
    partial_frame      collects a frame that arrives in pieces
    messages           lists the fields of the messages that the next module reads and writes
    codec              reads and writes whole messages, with a limit on their elements
    produce            reads the acks of a request, and finds throttle_time_ms in a response
    fetch              reads the limits and replica_id of a request, and counts the bytes of a response for a quota
    share_fetch        reads the limits of a request, and counts the bytes of a response for a quota
    replica_fetch      reads a follower's Fetch, and rewrites it with fewer partitions or fewer records
    record_batches     finds the ends of record batches
    api_versions       lowers the versions that a broker advertises to those that the proxy can read
    throttle_time      finds and writes throttle_time_ms in a response
    refusal_responses  writes responses that refuse a request and make the client try again
    topic_mutations    reads CreateTopics, CreatePartitions and DeleteTopics, and rewrites them with fewer topics
    client_quotas      reads DescribeClientQuotas and AlterClientQuotas, and writes their responses
    metadata_query     asks a broker for the partition counts of topics
    broker_list        finds lists of brokers and replaces their addresses, for the next three modules
    metadata           finds the nodes and the cluster id of a Metadata or DescribeCluster response
    find_coordinator   finds the coordinators of a FindCoordinator response
    node_endpoints     finds the new leaders at the end of a Produce, Fetch or share group response
    sasl               reads SASL logins and the names of their users
    proxy_protocol     reads the header of the PROXY protocol

In all modules:

* ``frame`` is one whole frame, with its size field. ``data`` contains the bytes that have arrived on a connection.
* ``offset``, ``position`` and ``start`` are indices into ``data``. Other frames may follow the ``end`` of a frame.
* A function that takes ``data`` returns None if more bytes are needed.
* ``api_key`` and ``api_version`` are those of the request, even in a function for responses. An unknown newer version
  is read like the newest version in ``api``.
* Malformed bytes raise a ``ProtocolError`` and no other exception.
"""
