"""The fair call queue decides when each request is forwarded to a broker, or refuses the request. No I/O, no clock.

A broker has a limited number of slots, one for each request that it gets at a time. A request is forwarded when it gets
a slot, and waits in the queue until then. The queue has several levels, of which level 0 has the most turns. The larger
a user's share of the cost of all recent requests, the lower the level of the user's requests, and the higher its
number. A user is, for example, a principal, or a principal and a client-id.

* ``request_kind``      the properties of a request that the queue depends on, for example whether it is a fetch
* ``cost``              the cost of a request
* ``decay``             the cost of each user's recent requests, and the user's level (``DecayRpcScheduler`` in Hadoop)
* ``multiplexer``       the level that has the next turn (``WeightedRoundRobinMultiplexer``)
* ``call_queue``        a bounded queue for each level (``FairCallQueue``)
* ``concurrency``       the number of requests that a broker gets at a time: fixed, or found by TCP Vegas
* ``dispatcher``        the queue and the slots of one broker
* ``connection_queue``  the place of one connection in the queue
* ``slot_timeouts``     the times at which slots are taken back from requests that may wait at the broker
* ``queue_stats``       the counters that the metrics read
* ``settings``          makes some of these from the configuration file

Each listener has one ``DecayScheduler``, and each broker has one ``Dispatcher``. When a request arrives,
``DecayScheduler.level`` and ``Dispatcher.ask`` are called. When the response arrives, ``Dispatcher.done``,
``DecayScheduler.charge`` and ``DecayScheduler.add_response_time`` are called.

The arithmetic is that of Hadoop's code, even where Hadoop's guide differs, except for what
docs/reference/fair-call-queue.md lists. ``FairCallQueue`` in ``config`` has the settings of all parts.
"""
