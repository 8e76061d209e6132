"""Turns the usage log into limits, bills and forecasts, with PySpark. No other package imports this one.

* ``record``           defines the columns of the log
* ``session``          starts the Spark session
* ``parsing``          turns lines into records, and finds faults and duplicates
* ``usage_reader``     reads the log, with ``log_files`` and ``kafka_source``
* ``lake``             is a table of records by day, which ``ingest`` fills
* ``time_span``        says which part of a log a command reads
* ``client_metrics``   recognises Kafka's own client metrics; ``prometheus_api`` asks a server for samples
                       of them, ``rate_samples`` makes records of samples, ``imported_log`` writes the records
* ``writing``          writes tables; ``file_system`` renames and deletes, and lets results appear complete
* ``whatif``           replays the log under other quotas: ``arrivals`` splits records into parts, ``replay`` charges
                       them (``unthrottled_fast_path`` charges many at once), ``bucket_stream`` feeds sorted rows to the
                       replay, ``candidate_quotas`` makes the buckets
* ``safe_limits``      finds limits for ``capacity``: ``limit_search`` decides which ones to replay
* ``local_hours``      adds up usage by hours in a time zone
* ``quota_comparison`` compares limits with what entities need
* ``capacity_report``  and ``whatif_report`` build pages: ``report_sections`` has what both have, ``plots`` the figures,
                       ``report`` the table of entities and the rest
* ``capacity``, ``chargeback``, ``rebalance``, ``balance``, ``alerts`` and ``simulate`` map DataFrames to DataFrames
* ``commands``         contains a module for each command of the command line
"""
