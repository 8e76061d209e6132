"""Metrics: plain integers that the event loop counts, written as text when a scrape asks for them.

exposition      Prometheus' text format, line by line
registry        every metric of the proxy, in order
listeners, connections, fair_queue, replication, quota_sources, usage_log, client_quotas    the metrics of each subject
buckets         what each bucket has used, and which buckets have their own series, up to a maximum

A scrape runs in a thread while the event loop changes what it reads. So nothing is locked or changed here, and a
container is copied in one step of the interpreter before it is walked. Two numbers of one scrape may be some
milliseconds apart.
"""
