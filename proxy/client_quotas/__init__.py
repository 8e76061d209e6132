"""Quotas that change while the proxy runs: set by administrators, or followed from a topic or the brokers.

manager         answers administrators' requests; ``api`` is its interface for a session
alter_handler   makes a request's changes: decided, stored, applied, audited
rule_applier    applies rules: the store's, the file's, as time goes on, as hosts are found
rule_timer      waits for rules that begin or end
host_resolver   finds the addresses of hosts that have limits
rules           which rules hold, and what a request changes; no I/O
formats         rules as JSON and as text; no I/O
storage         where rules are kept
audit           the log of changes, and their limit
topic, sources  rules that are followed
"""
