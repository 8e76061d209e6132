"""Shows who is throttled now, by which rule, since when, and from where: ``/clients`` of the admin port.

active          finds the active buckets, and the connections of their clients
rows            describes active buckets and their clients as the rows that a request wants
api             answers the requests

A bucket has the usage of one entity (a user, a client-id, or both) at one broker, for one kind of quota. There is one
row for each bucket, so clients that share a bucket share a row.

The rows are read in a thread, as the metrics are (``proxy.admin.metrics``). The thread pauses after every few rows.
"""
