"""Writes the usage log, which says how much of each quota was used in each interval, to files and to a Kafka topic.

* ``record``    defines and encodes a record of the log, and says when its interval starts
* ``meter``     turns the counters of quotas into records
* ``segments``  writes to files, and removes the oldest files
* ``topic``     writes to a Kafka topic (imported only if a topic is configured)
* ``sink``      queues records for the files or the topic, and writes them in a thread
* ``log``       runs on the event loop, reads the counters at the end of each interval, and passes records to the sinks
"""
