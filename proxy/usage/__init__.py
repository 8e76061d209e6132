"""Writes the usage log, which says how much of each quota was used in each interval, to files and to a Kafka topic.

* ``record``    defines a record and encodes it
* ``timeline``  determines the start of each interval, on a clock that may step
* ``meter``     turns the quotas' counters into records of the use since the last reading
* ``segments``  appends to files, completes them, and removes the oldest files
* ``topic``     writes to a Kafka topic (imported only if a topic is configured)
* ``sink``      has a bounded queue, and the thread that writes the files or the topic
* ``log``       runs on the event loop, reads the meter at each interval, and fills the sinks

The first three modules do no I/O and read no clock. No record is dropped to make room. While a sink is full, the
current interval goes on and gets longer.
"""
