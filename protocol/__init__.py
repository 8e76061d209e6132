"""Kafka's wire format, as far as quotas need it: bytes in, values and offsets out.

Standard library only; no I/O and no clock; independent of quotas, of the proxy and of its configuration. Bodies are
stepped over and not copied, so that the cost of a frame does not grow with its records.

    errors             the tree of errors in a peer's bytes
    primitives         integers, strings, arrays, tags: read or stepped over
    api                keys, versions and header versions of Kafka's APIs
    header             size, api_key, api_version, correlation_id and client_id of a frame
    partial_frame      a frame that arrives in pieces
    field_reader       reads a whole frame field by field, up to a number of elements
    field_writer       writes a whole frame field by field
    produce            acks of a request
    fetch              limits and replica_id of a request; the charge of a response
    share_fetch        limits of a request; the charge of a response
    replica_fetch      a follower's Fetch, read and rewritten with fewer partitions or fewer records
    record_batches     the ends of record batches
    api_versions       lowers the advertised versions to readable ones
    throttle_time      finds and writes throttle_time_ms in a response
    refusal_responses  responses of our own that make each client try again
    topic_mutations    topics of CreateTopics, CreatePartitions and DeleteTopics; the same with fewer topics
    client_quotas      DescribeClientQuotas and AlterClientQuotas, read and written
    metadata_query     our own query for partition counts
    broker_list        lists of brokers, and the same with advertised addresses; used by:
    metadata           nodes and cluster id of a Metadata or DescribeCluster response
    find_coordinator   coordinators of a FindCoordinator response
    node_endpoints     new leaders at the end of a Produce, Fetch or share group response
    sasl               SASL logins and the names of their users
    proxy_protocol     the PROXY protocol's header

In all modules:

* ``data`` has the bytes of a connection so far; ``frame`` is one whole frame, with the four bytes of its size.
* ``offset``, ``position`` and ``start`` are indices into ``data``. Other frames may follow the ``end`` of a frame.
* ``api_key`` and ``api_version`` are the request's, also for a response. A version newer than those of ``api`` is read
  like the newest there.
* A function on ``data`` returns None while more bytes are needed.
* Wrong bytes raise a ``ProtocolError`` and nothing else.
"""
