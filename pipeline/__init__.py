"""Turns the usage log into limits, bills and forecasts, with PySpark. No other package imports this one.

* ``record``           defines the columns of the log
* ``session``          starts the Spark session
* ``parsing``          turns lines into records, and finds faults and duplicates
* ``usage_reader``     reads the log, with ``log_files`` and ``kafka_source``; ``file_integrity`` finds broken files
* ``lake``             is a table of records by day, which ``lake_batch`` fills
* ``time_span``        says which part of a log a command reads
* ``client_metrics``   recognises Kafka's own client metrics; ``prometheus_api`` asks a server for samples of them,
                       ``rate_samples`` makes records of samples, ``imported_log`` writes the records, and
                       ``resolution`` says what imported records cannot tell
* ``writing``          writes tables; ``staging`` lets results appear complete; ``file_system`` renames and deletes
* ``kafka_config``     reads the client configuration for Kafka topics
* ``delivery``         writes alerts; ``checkpoint`` keeps the settings of a stream and its bad lines
* ``whatif``           replays the log under other quotas: ``arrivals`` splits records into parts, ``neighbour_rates``
                       helps to place the parts in time, ``replay`` charges them (``unthrottled_fast_path`` charges
                       many at once), ``bucket_stream`` feeds sorted rows to the replay, ``candidate_quotas`` makes the
                       buckets
* ``safe_limits``      finds limits for ``capacity``: ``limit_search`` decides which ones to replay, and
                       ``broker_capacity`` what brokers can bear
* ``rollup``           sums up the records for ``capacity``, in three tables
* ``local_hours``      adds up usage by hours in a time zone
* ``growth``           forecasts when use reaches a limit
* ``quota_comparison`` compares limits with what entities need
* ``verdict``          says whether limits can be switched on; ``teams`` adds up by owner
* ``capacity_report``  and ``whatif_report`` build pages: ``report_sections`` has what both have, ``entity_table`` the
                       table, ``plots`` the figures, ``report`` the rest
* ``capacity``, ``chargeback``, ``rebalance``, ``balance``, ``alerts`` and ``simulate`` map DataFrames to DataFrames
* ``commands``         contains a module for each command of the command line
"""
