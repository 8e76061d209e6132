"""Quotas administered the Kafka way: what Kafka's two APIs of client quotas answer, and where it is kept.

    entity       whom a rule is for, and what a rule says; as the wire has it, and as we do
    describe     which rules a filter matches
    alter        what becomes of a request to change some
    hash_order   in which order Kafka looks at the parts of an entity, and so which of two faults it tells
    errors       the errors of these APIs, by Kafka's numbers and in its words
    in_force     which rules hold, of the file and of a store
    addresses    those of addresses, whatever they are called; ``hosts``: when to look for those that were not found
    record       rules as lines of JSON, each with a checksum over all lines before it
    journal      the files of a store, as bytes: read as far as they can be trusted
    directory    the same on a disk: written before anybody is told, read after any crash

All but ``directory`` decides and does no I/O. What ``alter`` says is to change is changed once ``directory`` has it.
"""
