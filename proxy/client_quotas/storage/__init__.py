"""Stores the quotas that clients set through the proxy.

The quota manager first checks whether a client may make a change. Then it has the change stored here::

store              the interfaces of a store, and of the writer for a store that is a topic
directory_store    stores the quotas in a local directory of this proxy
rule_database      the SQLite database in that directory
old_format         reads the files of proxy versions that did not use SQLite yet
topic_store        stores the quotas in a Kafka topic that several proxies share
topic_store_state  works out which quotas of that topic apply, without I/O
topic_writer       writes to that topic
topic_copy         keeps a copy of that topic's quotas in a local directory of this proxy
"""
