"""A follower's Fetch (key 1, v0 to v18), read as a whole and written with other partitions, limits or records.

    request   the request: its partitions and limits
    response  the response: its partitions, with all of their records, fewer, or none
    topics    the arrays of topics and partitions that both have

Frames are whole, and versions are 0 to 18: callers pass no others. A topic or a partition may be listed twice. A
partition's entry is kept as a range of bytes, so that unchanged fields are copied as they are. No records are copied
before a frame is joined.
"""
