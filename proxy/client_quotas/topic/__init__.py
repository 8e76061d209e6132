"""Reads quota rules from a Kafka topic that several proxies share.

topic_rules     works out which rules of the topic this proxy applies, without I/O
record_table    keeps the latest records of each entity
topic_reader    reads the topic in a thread
topic_requests  the requests that the reader sends to the cluster
record_batches  decodes the records of a Fetch response (``config.quota_record`` describes their format)
reader_events   the events that the reader reports
reader_thread   passes these events from the thread to the event loop
own_address     finds out whether an address leads to this proxy itself
"""
