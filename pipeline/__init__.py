"""Turns the usage log into limits, bills and forecasts, with PySpark. No other package imports this one.

* ``record``           the columns of the log
* ``session``          the Spark session
* ``parsing``          lines to records, with faults and duplicates. No I/O
* ``usage_reader``     reads the log, from ``log_files`` and ``kafka_source``; ``damaged_files`` finds broken files
* ``writing``          writes tables; ``files`` renames and deletes
* ``kafka_config``     the client configuration for topics
* ``delivery``         writes alerts exactly once; ``checkpoint`` and ``quarantine`` keep a stream's state and bad lines
* ``whatif``           replays the log under other quotas: ``arrivals`` cuts records into parts, ``adjacent_rates``
                       helps to place them, ``replay`` charges them (``unthrottled`` many at once), ``sorted_replay``
                       feeds it sorted rows, ``proposed_quotas`` makes the buckets
* ``balancer``         moves shares of a cluster's limits with demand: ``limit_division`` computes them, ``leases``
                       keeps their sum below the limit, ``quota_topic`` writes them for the proxies
* ``capacity``, ``chargeback``, ``rebalance``, ``balance``, ``alerts``, ``simulate``: DataFrame -> DataFrame, no I/O
* ``commands``         the commands, one module each
"""
