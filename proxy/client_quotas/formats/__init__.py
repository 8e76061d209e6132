"""Rules and changes of them in the forms in which they are written and read. No I/O.

json_codec    rules, changes and results as JSON: the admin port's and the command line's
stored_rule   a rule and its entity as a store writes them
rule_status   what a rule amounts to at an instant, and why
format_rule   entities and limits as a person reads them
"""
