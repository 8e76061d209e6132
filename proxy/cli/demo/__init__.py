"""``kafka-quota-proxy demo`` shows how the proxy throttles a producer and a consumer to their quotas.

With ``--serve``, the clients are the user's own.

The demo needs neither Java nor Docker. It runs these processes, all of which end when the demo ends::

    demo: an aiokafka producer and consumer  →  the real proxy  →  relay  →  librdkafka's mock cluster
                                                                   └────── embedded_broker ────┘

* ``command``          parses the options and prints the result
* ``workload``         defines the options, and computes from them how large and how many records are
* ``mock_cluster``     runs librdkafka's mock cluster in confluent-kafka's wheel, through ctypes
* ``mock_relay``       relays connections to the mock cluster and corrects the mock's faulty responses
* ``mock_admin``       answers the admin requests that the mock lacks
* ``mock_groups``      repairs consumer groups, whose rebalances take long in the mock
* ``embedded_broker``  is the broker's process, which runs the mock cluster and the relay, and fills a topic
* ``processes``        runs child processes that end with the demo
* ``clients``          runs the producer and the consumer
* ``measure``          computes the rates that are compared with the quotas
* ``display``          shows the progress as lines, and the rates as a chart
* ``runner``           starts all processes, measures the clients' rates, and stops everything
* ``serve``            starts the broker and the proxy for the user's own clients
"""
