"""``kafka-quota-proxy demo``: a producer and a consumer held at their quotas, live, without Java or Docker.

The processes, each of which ends with the demo::

    demo: an aiokafka producer and consumer  →  the real proxy  →  relay  →  librdkafka's mock cluster
                                                                   └────── embedded_broker ────┘

* ``workload``         the options, and the sizes of requests and of preloaded data
* ``mock_cluster``     librdkafka's mock cluster in confluent-kafka's wheel, through ctypes
* ``mock_relay``       a relay that repairs the mock's faults on the wire
* ``embedded_broker``  the broker's process: mock, preload, relay
* ``processes``        child processes that end with the demo
* ``clients``          the producer and the consumer
* ``measure``          computes rates and compares them with the quotas
* ``display``          the live table, the plain lines
* ``runner``           runs all of it
"""
