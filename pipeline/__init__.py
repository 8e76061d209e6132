"""Turns the usage log, in which the proxies record what each client used, into limits, bills and forecasts.

It uses PySpark. No other package imports this one.

* ``record``           defines the columns of the log
* ``session``          starts the Spark session
* ``parsing``          turns lines into records, and finds faults and duplicates
* ``usage_reader``     reads the log, with ``log_files`` and ``kafka_source``; ``damaged_files`` finds broken files
* ``writing``          writes tables; ``files`` renames and deletes
* ``kafka_config``     reads the client configuration for Kafka topics
* ``delivery``         writes alerts exactly once; ``checkpoint`` keeps the settings of a stream and its bad lines
* ``whatif``           replays the log under proposed quotas: ``arrivals`` splits records into parts and guesses when
                       they arrived, ``adjacent_rates`` helps with this, ``replay`` charges the parts
                       (``unthrottled`` charges many at once), ``sorted_replay`` feeds sorted rows to the replay,
                       ``proposed_quotas`` holds the quotas, and creates buckets that count a client's use
* ``balancer``         divides a cluster's limits among proxies by demand: ``limit_division`` computes each proxy's
                       share, ``leases`` keeps the sum of the shares below the limit, ``quota_topic`` writes the
                       shares for the proxies
* ``capacity``, ``chargeback``, ``rebalance``, ``balance``, ``alerts`` and ``simulate`` map DataFrames to DataFrames
* ``commands``         contains a module for each command of the command line
"""
