"""Quota arithmetic: which bucket a request charges, and how long its client waits. No I/O, no clock.

Rules:

* ``entity``         Kafka's eight levels: (user, client-id) -> bucket and limit
* ``rule_tables``    the rules of all kinds, which all brokers share; ``rule_changes``, single rules that change
* ``rule_terms``     the form of a rule at one instant: expiry, schedule, ramp; ``rule_schedule``, when it changes
* ``address_limits`` the limits of addresses

Arithmetic:

* ``rate``           bytes per second over sampled windows, as Kafka's ``Rate``
* ``token_bucket``   ``shaping: paced``
* ``throttle``       rate, limit and window -> milliseconds
* ``request_time``   what a request costs a broker's threads

State of one broker:

* ``broker``                all kinds, folded and exempt principals
* ``client_quota_manager``  the buckets of one kind; ``bucket_table`` bounds their number, ``shared_buckets`` serves the
  clients beyond it
* ``bucket``                the limit on one entity; ``entity_usage`` counts its use, ``line`` holds waiting requests
* ``connections``           how fast connections are created; ``open_connections``, how many are open
* ``mutation``              which topics of a request may be created, grown or deleted
* ``replication``           the limit on what replicas fetch

The formula: a client that sent at rate O over a window W waits X = (O - T) / T * W, so that O * W / (W + X) = T, its
limit.
"""
