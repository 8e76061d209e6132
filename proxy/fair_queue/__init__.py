"""The fair call queue in front of a broker: it passes, holds or refuses requests. No I/O, no clock.

* ``request_kind``      the properties of an API that matter here: polls, group members that gather, control requests
* ``cost``              the cost of a request: 1, its time by phases with weights, or its bytes and its service time
* ``decay``             each user's recent cost, and so the level of its requests (``DecayRpcScheduler`` in Hadoop)
* ``multiplexer``       the level that has the next turn (``WeightedRoundRobinMultiplexer``)
* ``call_queue``        a bounded queue per level, with overflow to the levels below (``FairCallQueue``)
* ``concurrency``       the number of requests that a broker gets at a time: fixed, or found by TCP Vegas
* ``dispatcher``        one broker's queue and slots, with separate ones for control requests
* ``connection_queue``  one connection's place in the queue, from its first request to its last response
* ``slot_timeouts``     the deadlines of slots whose requests may wait at the broker
* ``queue_stats``       the counters that the metrics read
* ``settings``          the options of all these, from the file

One decay scheduler serves a listener, one dispatcher serves a broker. A request calls ``DecayScheduler.level`` and
``Dispatcher.ask``; its response calls ``Dispatcher.done``, ``DecayScheduler.charge`` and
``DecayScheduler.add_response_time``. Level 0 comes first, level n - 1 last.

Defaults are those of Hadoop's code, even if its guide differs; each improvement is an option.
"""
