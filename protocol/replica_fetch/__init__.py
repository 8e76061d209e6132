"""Reads a follower's Fetch requests and their responses (key 1), and writes them with fewer partitions or records.

    request   reads and writes requests, with their partitions and limits
    response  reads responses, and writes them with all, some or none of the records of a partition
    topics    reads and writes the arrays of topics and partitions in requests and responses

All functions expect whole frames, of versions 0 to 18. A topic or a partition may be listed twice. A partition of a
request is kept as its encoded bytes, and a partition of a response as a range of bytes in its frame, so their unchanged
fields are copied as they are.
"""
