"""Rules of a Kafka topic that several proxies share (``quotas_from``); ``config.quota_record`` is its format.

topic_rules     which of the records hold; no I/O
record_table    the records of each entity
topic_reader    reads the topic, in a thread
topic_requests  its requests to the cluster
record_batches  the records of a fetch response
reader_events   what the reader reports
reader_thread   hands these events to the event loop
own_address     whether an address leads to this proxy itself
"""
