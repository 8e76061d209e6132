"""Shows how far a partition reassignment has got, when it will end, and whether its throttle is too low for it to end.

* ``model``             defines the values that the other modules share
* ``log_growth``        computes the growth rates of logs
* ``progress``          turns samples of log sizes into bytes left, rates and times
* ``throttles``         finds the throttle of each replica in the configuration file and in the cluster's configs
* ``cluster_snapshot``  reads the samples from a cluster, and never writes to the cluster
* ``watch``             decides when to read, when to report, and when to stop
* ``as_text``           formats reports as text and as JSON
* ``human_units``       formats sizes, rates and times for ``as_text``
* ``display``           writes reports to a terminal, a pipe or a script

Only ``cluster_snapshot``, ``watch`` and ``display`` do I/O or read a clock.
"""
