"""The proxy, which forwards Kafka requests to brokers and enforces quotas. Each folder has one task.

* ``quota``          computes which quotas a request is charged to, and how long its client waits
* ``session``        decides what is forwarded on one client's connection, and when
* ``fair_queue``     decides when each request is forwarded to a broker
* ``server``         does the I/O: listeners, connections, timers and reloads
* ``rules``          changes quotas while the proxy runs
* ``replication``    limits the replication between brokers
* ``usage``          writes the usage log
* ``admin``          serves health checks, metrics and quotas over HTTP
* ``kafka_client``   asks clusters, and writes to topics of the proxy's own
* ``runtime``        contains errors, and runs threads
* ``cli``            contains the commands of the command line
"""
