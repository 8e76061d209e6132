"""How far a reassignment is, when it ends, and whether its throttle is too low ever to end.

* ``model``: the values of all below.
* ``progress``: samples of sizes in, bytes left, rates and times out. No I/O, no clock.
* ``rates``: how fast logs grow. No I/O, no clock.
* ``throttles``: which rate holds for which replica, by the operator's file or the cluster's configs. No I/O.
* ``reading``: the samples, from a cluster. It never writes.
* ``text``, ``words``: what a person and what a script reads. No I/O, no clock.
"""
