"""``kafka-quota-proxy demo``: a producer and a consumer held at their quotas, live, without Java or Docker.

What runs, each a process of its own under a ``guard`` that outlives neither it nor the demo::

    demo: an aiokafka producer and consumer  →  the real proxy  →  front  →  librdkafka's mock cluster
                                                                   └────── broker ──────┘

* ``load``       how much each client moves at a time, what is preloaded, how long to look
* ``library``    where confluent-kafka's wheel keeps librdkafka
* ``mock``       librdkafka's mock cluster, through ctypes
* ``front``      what the mock gets wrong on the wire, put right
* ``broker``     the broker's process: mock, preload, front
* ``processes``  children that end with the demo, whatever ends it; ``guard`` is the program around each of them
* ``clients``    the producer and the consumer
* ``measure``    from what they moved to a rate and a verdict
* ``scrape``     throttle times, from the proxy's /metrics
* ``display``    the live table, the plain lines, the summary
* ``stage``      all of it together
"""
