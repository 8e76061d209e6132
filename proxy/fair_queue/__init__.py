"""Decides when each request is forwarded to a broker, or refuses it: the fair call queue. No I/O, no clock.

A request needs a slot to be at the broker. Requests without a slot wait in a queue with several levels. A request gets
its level from its user's share of the recent cost: the more a user has used, the lower the level. Of n levels, level 0
is served first and level n - 1 last. A user's identity is, for example, a principal, or a principal and a client-id.

* ``request_kind``      the properties of a request that the queue depends on, for example whether it is a poll
* ``cost``              the cost of a request: 1, or its weighted time, or its bytes and its service time
* ``decay``             each user's recent cost, which decides the level of the user's requests (``DecayRpcScheduler``
  in Hadoop)
* ``multiplexer``       the level that has the next turn (``WeightedRoundRobinMultiplexer``)
* ``call_queue``        a bounded queue per level, with overflow to the levels below (``FairCallQueue``)
* ``concurrency``       the number of requests that a broker gets at a time: fixed, or found by TCP Vegas
* ``dispatcher``        one broker's queue and slots, with separate ones for control requests
* ``connection_queue``  one connection's place in the queue, from its first request to its last response
* ``slot_timeouts``     the deadlines of slots whose requests may wait at the broker
* ``queue_stats``       the counters that the metrics read
* ``settings``          the options of all these modules, from the configuration file

Each listener has one decay scheduler, and each broker has one dispatcher. When a request arrives,
``DecayScheduler.level`` and ``Dispatcher.ask`` are called. When the response arrives, ``Dispatcher.done``,
``DecayScheduler.charge`` and ``DecayScheduler.add_response_time`` are called.

The defaults are those of Hadoop's code, even where Hadoop's guide differs. Each improvement on Hadoop is an option.
"""
