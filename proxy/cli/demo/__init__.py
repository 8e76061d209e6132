"""``kafka-quota-proxy demo`` shows how the proxy holds a producer and a consumer at their quotas.

The demo needs neither Java nor Docker. It runs these processes, all of which end when the demo ends::

    demo: an aiokafka producer and consumer  →  the real proxy  →  relay  →  librdkafka's mock cluster
                                                                   └────── embedded_broker ────┘

* ``command``          parses the options and prints the result
* ``workload``         defines the options, and the sizes of requests and of preloaded data
* ``mock_cluster``     runs librdkafka's mock cluster in confluent-kafka's wheel, through ctypes
* ``mock_relay``       relays connections to the mock cluster and repairs the mock's faults
* ``embedded_broker``  is the broker's process: it runs the mock cluster and the relay, and preloads a topic
* ``processes``        runs child processes that end with the demo
* ``clients``          runs the producer and the consumer
* ``measure``          computes the rates that are compared with the quotas
* ``display``          shows the progress as a table or as plain lines
* ``runner``           starts, measures and stops all of it
"""
