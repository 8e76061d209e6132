"""The arithmetic of quotas: who is charged, how fast they are, how long they wait. No I/O, no clock.

* ``entity``    (user, client-id) -> whose bucket is charged and whose limit holds: Kafka's eight levels
* ``rate``      bytes per second over sampled windows, as Kafka's ``Rate``; and its ``Avg``
* ``pacing``    the token bucket behind ``shaping: paced``
* ``throttle``  the decision: rate, limit, window -> milliseconds
* ``client``    ``ClientQuotaManager``: buckets, charging, changing limits, expiry
* ``places``    how many buckets there may be, and which makes room
* ``address_limits``    which address may create how many connections a second
* ``connections``       how fast connections may come: at a broker, to a listener, from an address
* ``open_connections``  how many a user or client-id may have at once
* ``mutation``  the decision on topics that are made, grown or deleted: which pass, what they cost
* ``shared``    the rules of all kinds, which all brokers share
* ``broker``    the quota state of one broker: all kinds, folding, exempt principals

The formula: a client that sent at rate O over a window W is silent for X = (O - T) / T * W, so that
O * W / (W + X) = T, its limit.
"""
