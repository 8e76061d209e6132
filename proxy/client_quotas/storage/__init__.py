"""Where administered quotas are kept. The manager decides on a change and hands it to a store.

store              what the manager needs of a store
open_store         makes the store that a configuration asks for
directory_store    rules in a directory of this proxy
rule_database      the SQLite database of such a directory; ``database_thread`` runs it in a thread
old_format         reads directories of versions before SQLite
topic_store        rules in a Kafka topic that several proxies share
topic_store_state  which rules of that topic hold, without I/O
topic_writer       writes to it; ``write_request`` is its interface
topic_copy         a copy of that topic's rules in a directory of this proxy
"""
