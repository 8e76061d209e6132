"""The answers of Kafka's two APIs of client quotas, and which rules hold. No I/O, no clock.

entity           entities and stored rules
alter            the changes and the answer of a request to change rules
describe         the rules that a filter matches
errors           Kafka's error codes and messages
hash_order       the order in which Kafka checks the parts of an entity, and so which of two faults it names
outcome          the outcome of a change, for the audit log and the admin port
effective_rules  which rules hold: the file's, and the store's for other entities
ip_rules         which rules of addresses hold
host_retry       when to look up hosts without an address again
"""
