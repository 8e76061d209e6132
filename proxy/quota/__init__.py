"""Computes which bucket a request is charged to, and how long its client waits. Does no I/O and reads no clock.

A bucket measures and limits the usage of one user, one client-id, or both together.

Rules:

* ``entity`` finds the bucket and the limit of a user and client-id by Kafka's eight levels
* ``rule_tables`` has the rules of all kinds of quota, which all brokers share
* ``rule_changes`` has the types for changes of single rules
* ``rule_terms`` computes the limits that a rule has at one instant, from its expiry, schedule and ramp
* ``rule_schedule`` knows when the limits of each rule change next
* ``rule_phrases`` describes the expiry, schedule and ramp of a rule in words
* ``address_limits`` has the limits of IP addresses

Arithmetic:

* ``rate`` measures rates over sampled windows, as Kafka does
* ``token_bucket`` limits a rate for ``shaping: paced``
* ``throttle`` computes a wait from a rate, a limit and a window
* ``request_time`` estimates how much thread time a request costs a broker

State of one broker:

* ``broker`` has the quotas of all kinds, and finds the user that each principal counts as
* ``client_quota_manager`` has the buckets of one kind of quota, such as produced bytes per second
* ``bucket_table`` bounds the number of buckets
* ``shared_buckets`` has the buckets of clients for which a full table has no place
* ``bucket`` applies a limit, with the bounds of ``bucket_bounds``
* ``shadow_bucket`` computes what enforcement would have done to a bucket that is only observed
* ``entity_usage`` counts the usage of a bucket
* ``kafka_rates`` measures the rates of Kafka's buckets, where the buckets here are smaller
* ``sanitize`` writes user names as Kafka writes them in its metrics
* ``line`` holds waiting requests
* ``connections`` limits how fast connections are created
* ``open_connections`` limits how many connections are open
* ``mutation`` decides which topics a client may create, extend or delete
* ``replication`` limits what replicas fetch
"""
