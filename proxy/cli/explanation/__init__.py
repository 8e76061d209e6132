"""Explains the quotas of a client: which rule sets each limit, with which precedence, and why other rules do not apply.

* ``resolve``  computes an explanation with the code that runs in the proxy
* ``output``   formats an explanation for scripts and for people

These modules do no I/O and read no clock.
"""
