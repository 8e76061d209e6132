"""Reads and writes quota rules, and changes of these rules, as JSON and as text. Does no I/O.

json_codec    reads and writes rules, changes and results as the JSON of the admin port and the command line
stored_rule   reads and writes a rule as the JSON in which it is stored
rule_status   reads and writes which limits of a rule are in force at an instant, and why
format_rule   writes rules as text for people
"""
