"""``kafka-quota-proxy demo``: a producer and a consumer held at their quotas, live, without Java or Docker.

The processes, each under a ``guard`` that ends with it and with the demo::

    demo: an aiokafka producer and consumer  →  the real proxy  →  front  →  librdkafka's mock cluster
                                                                   └────── broker ──────┘

* ``load``       the sizes of requests and of preloaded data, and the duration
* ``library``    finds librdkafka in confluent-kafka's wheel
* ``mock``       librdkafka's mock cluster, through ctypes
* ``front``      a relay that repairs the mock's faults on the wire
* ``broker``     the broker's process: mock, preload, front
* ``processes``  child processes that end with the demo; ``guard`` is the program around each of them
* ``clients``    the producer and the consumer
* ``measure``    computes rates and compares them with the quotas
* ``scrape``     reads throttle times from the proxy's /metrics
* ``display``    the live table, the plain lines, the summary
* ``stage``      runs all of it
"""
