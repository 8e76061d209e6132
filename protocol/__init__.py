"""Kafka's wire format, as much of it as quotas need: bytes in, values and offsets out.

Standard library only; no I/O, no clock; knows nothing of quotas, proxies or configuration. Bodies are stepped over, not
decoded or copied, so that the cost of a frame does not grow with its records.

    errors          what can be wrong with a peer's bytes, drawn as a tree
    primitives      integers, strings, arrays, tags: read or step over
    api             keys, versions and header versions of Kafka's APIs
    header          the front of a frame: size, api, correlation_id, client_id
    produce         acks of a request
    fetch           limits and replica_id of a request; what a response is charged
    api_versions    announce only the versions that we can read
    throttle_time   where a response tells its client how long to wait; write it there
    field_reader    a whole frame, field by field, in either encoding, up to a number of elements
    topic_mutations topics in CreateTopics, CreatePartitions and DeleteTopics; the same with fewer topics
    refusal_responses   responses of our own that make each client try again
    client_quotas   DescribeClientQuotas and AlterClientQuotas, read and written on both sides
    metadata_query  how many partitions topics have: asked, and read

Functions that work on a stream give None while more bytes are needed. Bytes raise ``ProtocolError`` and nothing else.
Offsets are indices into the data given; a whole frame includes the four bytes of its size.
"""
