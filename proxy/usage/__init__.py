"""The usage log: the use of each quota in each interval, written to files and to a Kafka topic.

* ``record``    one record, and its bytes
* ``timeline``  the start of each interval, on a clock that may step
* ``meter``     turns counters into records of the use since the last reading
* ``segments``  the files: append, complete, and remove the oldest
* ``topic``     a Kafka topic; imported only if one is configured
* ``sink``      a bounded queue, and the thread that writes files or the topic
* ``log``       the event loop's part: reads the meter at each interval and fills the sinks

The first three have no I/O and no clock. No record is dropped to make room: while a sink is full, intervals grow.
"""
