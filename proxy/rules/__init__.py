"""Rules of quotas that change while the proxy runs: where they come from, which apply, and how they are set.

A rule contains the limits of an entity (a user, a client-id, both, or an IP address). It may also contain terms, such
as an expiry or a schedule (``config.terms``). A rule is in force while the proxy enforces its limits.

model, codec, text      entities and rules, as JSON and as text, without I/O
source, configured      what a source of rules is, and the one that a configuration names
sqlite, topic, broker   the sources: a directory of this proxy, a Kafka topic, and the brokers
effective               determines which rules are in force, by precedence and time, without I/O
keeper                  applies rules when the source, the configuration file or the time changes
administration          answers administrators' requests: decides, stores, audits
api                     the interface between ``administration`` and a client's session
alter, describe         decide what a request changes or shows, as Kafka does (``errors``, ``outcome``), without I/O
audit                   counts changes, limits their rate, and writes the audit log
"""
