"""Reads a whole Fetch of a follower (key 1, v0 to v18), and writes it with other partitions, limits or records.

    request   reads and writes requests, with their partitions and limits
    response  reads responses, and writes them with all, some or none of the records of a partition
    topics    reads and writes the arrays of topics and partitions that requests and responses have

Callers pass only whole frames, of versions 0 to 18. A topic or a partition may be listed twice. A partition's entry is
kept as a range of bytes, so that unchanged fields are copied as they are. Records are copied only once, when the parts
of a frame are joined.
"""
