"""Writes the metrics. The event loop counts plain numbers, and a scrape of Prometheus writes them as text.

exposition      writes Prometheus' text format, line by line
registry        collects every metric of the proxy, in a fixed order
listeners, connections, fair_queue, replication, quota_sources, usage_log, client_quotas    the metrics of each subject
buckets         reads the usage of each entity, and limits how many entities have series of their own

A scrape runs in a thread while the event loop changes the numbers. So this package neither locks nor changes them, and
it copies a container in one step of the interpreter before it iterates over the copy. Two numbers of one scrape may be
read some milliseconds apart.
"""
