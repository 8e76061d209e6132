"""Computes which bucket a request charges, and how long its client waits. Does no I/O and reads no clock.

Rules:

* ``entity``         finds the bucket and the limit of a (user, client-id) by Kafka's eight levels
* ``rule_tables``    has the rules of all kinds of quota, which all brokers share
* ``rule_changes``   has the types for changes of single rules
* ``rule_terms``     computes the form that a rule has at one instant, from its expiry, schedule and ramp
* ``rule_schedule``  knows when the form of each rule changes next
* ``rule_phrases``   says in words what the times of a rule do
* ``address_limits`` has the limits of IP addresses

Arithmetic:

* ``rate``           measures bytes per second over sampled windows, as Kafka's ``Rate`` does
* ``token_bucket``   is the arithmetic of ``shaping: paced``
* ``throttle``       computes a wait in milliseconds from a rate, a limit and a window
* ``request_time``   estimates how much thread time a request costs a broker

State of one broker:

* ``broker``                has the quotas of all kinds, and knows which principals are folded or exempt
* ``client_quota_manager``  has the buckets of one kind of quota
* ``bucket_table``          bounds the number of buckets
* ``shared_buckets``        serves the clients for which the table has no place
* ``bucket``                applies the limit on one entity, with the bounds of ``bucket_bounds``
* ``shadow_bucket``         computes what enforcement would have done to a bucket that is only observed
* ``entity_usage``          counts the usage of one entity
* ``kafka_rates``           measures rates under the tags that Kafka would use
* ``sanitize``              writes user names as Kafka writes them in its metrics
* ``line``                  holds waiting requests
* ``connections``           limits how fast connections are created
* ``open_connections``      limits how many connections are open
* ``mutation``              decides which topics of a request may be created, grown or deleted
* ``replication``           limits what replicas fetch

A client with the limit T that sent at the rate O over a window W waits X = (O - T) / T * W. With this pause its rate is
O * W / (W + X) = T.
"""
