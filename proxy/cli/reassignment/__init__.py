"""Shows how far a partition reassignment has got, and when it will end, if at all.

* ``progress``          turns samples of log sizes into bytes left, rates and times
* ``cluster_snapshot``  reads the samples from a cluster
* ``as_text``           formats reports as text and as JSON

Only ``cluster_snapshot`` does I/O.
"""
