"""Reads rules from a Kafka topic that several proxies share (``quotas_from``).

topic_rules     works out which rules of the topic are in force, without I/O
record_table    keeps the latest records of each entity
topic_reader    reads the topic in a thread
topic_requests  the requests that the reader sends to the cluster
record_batches  decodes the records of a Fetch response (``config.quota_record`` describes their format)
reader_events   the events that the reader reports
reader_thread   passes these events to the event loop
own_address     finds out whether an address leads to this proxy itself
"""
