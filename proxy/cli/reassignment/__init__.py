"""The progress of a reassignment: bytes left, when it ends, and whether its throttle is too low to end.

* ``model``             the values that the other modules share
* ``rates``             growth rates of logs. No I/O, no clock
* ``progress``          turns samples of sizes into bytes left, rates and times. No I/O, no clock
* ``throttles``         the throttle of each replica, from the file and the cluster's configs. No I/O
* ``cluster_snapshot``  reads the samples from a cluster; it never writes
* ``watch``             decides when to read, when to report, and when to stop
* ``as_text``           reports as text and as JSON, with ``phrases`` for numbers. No I/O, no clock
* ``display``           writes reports to a terminal, a pipe or a script
"""
