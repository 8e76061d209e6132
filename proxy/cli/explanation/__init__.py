"""Explains the quotas of a client: which rule sets each limit, with which precedence, and why other rules do not apply.

* ``model``    contains the data classes for an explanation
* ``resolve``  computes an explanation with the code that runs in the proxy
* ``as_json``  formats an explanation for scripts
* ``as_text``  formats an explanation for people

These modules do no I/O and read no clock.
"""
