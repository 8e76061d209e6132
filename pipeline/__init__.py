"""From the usage log to limits, bills and forecasts, with PySpark. Nothing of ours imports this package.

* ``record``     the columns of the log
* ``session``    where Spark comes from
* ``parsing``    lines to records: what is wrong with a line, what came twice. No I/O
* ``reading``    the one module that reads the log
* ``writing``    the one module that writes tables; ``files`` renames and deletes
* ``kafka_config`` how the clusters of topics are spoken to
* ``delivery``   writes what a stream finds, exactly once; ``checkpoint`` is what a stream remembers
* ``balancer``   shares of a cluster's limits that follow demand; of ``wants`` (who is to have how much) and ``leases``
                 (when he may), without I/O; ``quota_topic`` writes them for the proxies
* ``simulate`` and the other modules named after commands: DataFrame -> DataFrame, no I/O
* ``commands``   what a user types: one module a command
"""
