"""The fair call queue in front of a broker: whose request goes next, who waits, who is refused. No I/O, no clock.

* ``cost``         what a request costs: one, its time by phases with weights, or its bytes and its service time
* ``decay``        who uses how much of late, and so which level a user's requests get (``DecayRpcScheduler`` in Hadoop)
* ``multiplexer``  which level has the next turn (``WeightedRoundRobinMultiplexer``)
* ``call_queue``   a bounded queue per level, overflow to the levels below, who waits for room (``FairCallQueue``)
* ``concurrency``  how many requests a broker is given at a time: fixed, or found by TCP Vegas
* ``dispatcher``   what one broker has: its queue, its slots, and a lane of its own for heartbeats and groups

One decay scheduler serves a listener, one dispatcher serves a broker. A request's way: ``DecayScheduler.level``,
``Dispatcher.ask``, and when its answer has passed ``Dispatcher.done``, ``DecayScheduler.charge`` and
``DecayScheduler.add_response_time``. Level 0 comes first, level n - 1 last.

Defaults are those of Hadoop's code, also where its guide says otherwise; an option chooses each improvement.
"""
