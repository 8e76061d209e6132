"""Metrics: the plain integers that the loop counts in, put into words when somebody asks.

* ``text``      Prometheus' text format, line by line
* ``usage``     what each bucket has used; which of them have series of their own, under a cap
* ``singles``     families of one value each, as a table
* ``connections``, ``replication``, ``call_queue``, ``usage_log``  those of quotas on connections, of replication, of
  queues in front of brokers, and of the usage log
* ``quota_topics``, ``quota_store``, ``quota_changes``, ``broker_quotas``  those of quotas that are not the file's: in
  topics, set through this proxy, how often they are changed, and the brokers' own
* ``families``  every metric of the proxy

All of it runs in the thread of a scrape while the loop goes on changing what it reads. So nothing of the proxy's is
locked or changed, and a container is copied in one step of the interpreter before it is walked. Two numbers of one
scrape may be some milliseconds apart.
"""
