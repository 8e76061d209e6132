"""Explanation of a client's quotas: the rule that applies, its level, and why others do not. No I/O, no clock.

* ``model``    the explanation as values
* ``resolve``  computes it with the code that runs in the proxy
* ``as_json``  for scripts
* ``as_text``  for people
"""
