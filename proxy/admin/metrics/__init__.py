"""Writes the metrics of the proxy for Prometheus.

exposition      writes Prometheus' text format, line by line
registry        collects every metric of the proxy, in a fixed order
listeners, connections, fair_queue, replication, quota_sources, client_quotas    the metrics of each subject

A scrape runs in a thread, without locks, while the event loop changes the numbers. Before the thread iterates over a
container, it copies the container with a single call, which the event loop cannot interrupt.
"""
