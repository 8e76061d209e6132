"""One client's connection, without I/O.

``session``    what the shell calls: data and the time come in
``requests``   from the client to the broker
``responses``  and back
``state``      what all of it is about
"""

from kafka_quota_proxy.proxy.session.session import Session

__all__ = ["Session"]
