"""Where administered quotas are kept. The manager decides on a change and hands it to a store.

store              the interfaces of a store, and of the writer of a topic
directory_store    rules in a directory of this proxy
rule_database      the SQLite database of such a directory
old_format         reads directories of versions before SQLite
topic_store        rules in a Kafka topic that several proxies share
topic_store_state  which rules of that topic hold, without I/O
topic_writer       writes to it
topic_copy         a copy of that topic's rules in a directory of this proxy
"""
