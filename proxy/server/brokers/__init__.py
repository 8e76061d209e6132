"""The brokers behind the proxy: which there are, how they are reached, and the quotas and queue of each.

broker             one broker with the quotas of its clients, and an upstream: an address at which it is reached
registry           one set of quotas and one queue for all upstreams of a broker
known_brokers      all brokers, and to which of them each listener forwards its clients
finder, identity   which broker of which cluster an address leads to
cluster_listeners  a port for each broker of a cluster
cluster_members    which brokers a cluster has
cluster_query      asks a broker for the id and the brokers of its cluster
dialer             connections to brokers
host_lookups       the addresses of brokers' host names
probe, faults      whether a broker is reached without a login, and why not
bypass             whether a broker sends clients past the proxy
queue              the fair call queue of a broker, on the event loop
"""
