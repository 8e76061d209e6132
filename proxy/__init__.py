"""The proxy. In six terms, from the floor up:

* ``quota``       the arithmetic: who is charged, how fast they are, how long they wait. Bytes and ``now_ms`` in, milliseconds out
* ``session``     one client's connection without I/O: what was read goes in, what is to be written and until when to be silent comes out
* ``connection``  two transports and one timer around a session
* ``server``      listeners, dials, sweeps, signals
* ``metrics``, ``admin``, ``reload``, ``log``   what operators see and change
* ``commands``    the command line
"""
