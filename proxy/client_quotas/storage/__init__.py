"""Stores the quotas that clients set through the proxy, once the quota manager has accepted a change.

store              the interfaces of a store, and of the writer for a store that is a topic
directory_store    keeps the rules in a directory of this proxy
rule_database      the SQLite database in that directory
topic_store        keeps the rules in a Kafka topic that several proxies share
topic_store_state  works out which rules of that topic are in force, without I/O
topic_writer       writes to that topic
topic_copy         keeps a copy of that topic's rules in a directory of this proxy
"""
