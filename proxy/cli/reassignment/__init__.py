"""The progress of a reassignment: bytes left, when it ends, and whether its throttle is too low to end.

* ``model``             the values that the other modules share
* ``log_growth``        growth rates of logs
* ``progress``          turns samples of sizes into bytes left, rates and times
* ``throttles``         the throttle of each replica, from the file and the cluster's configs
* ``cluster_snapshot``  reads the samples from a cluster; it never writes
* ``watch``             decides when to read, when to report, and when to stop
* ``as_text``           reports as text and as JSON, with ``human_units`` for numbers
* ``display``           writes reports to a terminal, a pipe or a script

Only ``cluster_snapshot``, ``watch`` and ``display`` do I/O or have a clock.
"""
