"""Quotas that are administered while the proxy runs: their rules, where they are kept, and where else they come from.

rules/    which rules hold, and what becomes of a change; no I/O
formats/  a rule as JSON and as a line of text; no I/O
audit/    who asked for which change, and what became of it
storage/  where changes are kept: a directory, or a Kafka topic
topic/    the records of a quota topic, and how it is read
sources/  rules from a quota topic and from the broker itself
"""
