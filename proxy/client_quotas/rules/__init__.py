"""What Kafka's two APIs of client quotas answer, and which rules hold. No I/O, no clock.

entity           whom a rule is for, and what it says
alter            what a request to change rules changes, and what Kafka answers
describe         which rules a filter matches
errors           Kafka's error codes and messages
hash_order       the order in which Kafka looks at the parts of an entity, and so which of two faults it names
outcome          the outcome of a change, for the audit log and the admin port
effective_rules  which rules hold: the file's, and the store's for other entities
ip_rules         which rules of addresses hold, whatever names hosts have
host_retry       when to look again for hosts without an address
"""
