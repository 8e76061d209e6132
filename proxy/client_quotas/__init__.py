"""Changes quotas while the proxy runs. Administrators set them, or the proxy reads them from a topic or the brokers.

A rule contains the limits of an entity (a user, a client-id, both, or an IP address). It may also contain terms, such
as an expiry or a schedule (``config.terms``). A rule is in force while the proxy enforces its limits.

manager         answers administrators' requests
api             defines the interface between ``manager`` and a client's session
alter_handler   makes the changes of a request: decides on them, stores them, applies them, and audits them
rule_applier    applies rules when the store, the configuration file or the time changes
rule_timer      waits for the times at which rules begin or end
rules           determines which rules are in force, and what a request changes, without I/O
formats         reads and writes rules as JSON and as text, without I/O
storage         stores the rules that administrators set
audit           counts changes, limits their rate, and writes the audit log
topic, sources  read rules from a topic or from the brokers, and follow their changes
"""
