"""Reads rules from a Kafka topic, which may be the store of several proxies.

topic_source    the source: passes on what is read, and writes changes
topic_state     works out the rules from the records, without I/O
record_table    keeps the latest records of each entity
clients         what reads the topic in a thread, and what writes to it
topic_reader    reads the topic
topic_writer    writes to the topic
record_batches  decodes the records of a Fetch response (``config.quota_record`` describes their format)
"""
