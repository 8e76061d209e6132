"""Rules of a Kafka topic that the proxies of a fleet share (``quotas_from``); ``config.quota_record`` is its format.

``state`` decides which of them hold, without I/O or clock; ``reader`` reads the topic, in a thread, and ``batches``
takes its answers apart; ``hearing`` hands what it tells to the loop, and ``watcher`` is the loop's part.
"""
