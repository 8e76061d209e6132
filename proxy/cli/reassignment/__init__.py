"""Shows how far a partition reassignment has got, and when it will end, if at all.

* ``progress``  turns samples of log sizes into bytes left, rates and times
* ``watch``     reads the samples from a cluster, and decides when to report, and when to stop
* ``as_text``   formats reports as text and as JSON

Only ``watch`` does I/O or reads a clock.
"""
