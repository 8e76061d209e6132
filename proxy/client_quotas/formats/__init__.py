"""Reads and writes rules, and changes of rules, as JSON and as text. Does no I/O.

json_codec    reads and writes rules, changes and results as the JSON of the admin port and the command line
stored_rule   reads and writes a rule and its entity as the JSON of a store
rule_status   reads and writes the limits that a rule has at an instant, and why
format_rule   writes entities and limits as text for people
"""
