"""Shows how far a partition reassignment has got, and when it will end, if at all.

* ``model``             defines the values that the other modules share
* ``progress``          turns samples of log sizes into bytes left, rates and times
* ``cluster_snapshot``  reads the samples from a cluster, and never writes to the cluster
* ``watch``             decides when to read, when to report, and when to stop
* ``as_text``           formats reports as text and as JSON
* ``human_units``       formats sizes, rates and times for ``as_text``

Only ``cluster_snapshot`` and ``watch`` do I/O or read a clock.
"""
