"""Keeps rules in a directory of this proxy.

directory_store  the source: stores the changes of administrators
rule_database    the SQLite database in the directory, which also keeps the copy of a topic's rules
"""
