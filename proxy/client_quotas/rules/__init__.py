"""Determines which rules are in force, and answers Kafka's two APIs of client quotas. Does no I/O and reads no clock.

entity           defines the types for entities and stored rules
alter            decides which changes a request makes, and what is answered
describe         finds the rules that a filter matches
errors           defines Kafka's error codes and messages
outcome          defines the outcome of a change, for the audit log and the admin port
effective_rules  determines which rules are in force, from the configuration file and the store
"""
