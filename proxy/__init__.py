"""The proxy, from the floor up.

* ``quota``       the arithmetic: who is charged, how fast they are, how long they wait
* ``session``     one client's connection without I/O: bytes and the time in, what to write and when to wait out
* ``connection``  two transports and one timer around a session
* ``server``      listeners, dials, sweeps
* ``metrics``, ``admin``, ``reload``, ``log``, ``throttle_log``   what operators see and change
* ``commands``    the command line; ``demo`` what ``kafka-quota-proxy demo`` shows
"""
