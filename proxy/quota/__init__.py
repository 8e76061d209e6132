"""Determines which bucket a request is charged to, and how long its client must wait. Does no I/O and reads no clock.

A bucket measures and limits the usage of one user, one client-id, or one user with one client-id.

Rules:

* ``entity`` has the types for users and client-ids, and Kafka's eight levels of precedence
* ``rule_tables`` contains the rules, which all brokers share, and finds the bucket and the limit of each client
* ``rule_throttle_times`` adds up for how long each rule throttles
* ``rule_terms`` computes the limits that a rule has at one instant, from its expiry, schedule and ramp
* ``rule_phrases`` describes the expiry, schedule and ramp of a rule in words
* ``address_limits`` contains the limits of IP addresses

Arithmetic:

* ``rate`` measures rates over sampled windows, as Kafka does
* ``token_bucket`` limits a rate, instead of ``rate``, for quotas with the setting ``shaping: paced``
* ``throttle`` computes how long a client must wait, from a rate, a limit and a window
* ``request_time`` estimates how much thread time a request costs a broker

State of one broker:

* ``broker`` contains the quotas of all kinds, and finds the user whose quotas apply to each principal
* ``client_quota_manager`` contains the buckets of one kind of quota, such as produced bytes per second
* ``bucket_table`` keeps the number of buckets bounded
* ``shared_buckets`` contains buckets that several clients share while the table of buckets is full
* ``bucket`` applies a limit, with the bounds of ``bucket_bounds``
* ``shadow_bucket`` computes what enforcement would have done to a bucket that is only observed
* ``entity_usage`` counts the usage of a bucket
* ``kafka_rates`` measures what Kafka would measure, where Kafka has one bucket for several of the proxy's buckets
* ``sanitize`` writes user names as Kafka writes them in its metrics
* ``line`` holds the requests that wait until their bucket is within its limit
* ``connections`` limits how fast connections are created
* ``open_connections`` limits how many connections are open
* ``mutation`` decides which topics a client may create, extend or delete
* ``replication`` limits how fast replicas are fetched
"""
