"""The usage log: who used how much under which quota, in each interval, to files and to a Kafka topic.

* ``record``    one line of it, and its bytes
* ``timeline``  when an interval began, on a clock that may step
* ``meter``     counters in, records out: what has moved since they were read last
* ``segments``  files: appended to, completed, kept within bounds
* ``topic``     a Kafka topic; imported only where one is configured
* ``sink``      a bounded queue and a thread in which one of the two is written
* ``log``       the loop's part: every interval, from the one to the other

The first three have no I/O and no clock. Nothing is ever dropped to make room: while a sink is full, intervals grow.
"""
