"""The running proxy: does all I/O between clients and brokers, and handles reloads and the shutdown.

server, active_rules, known_brokers   the running proxy; the quota rules in force; the brokers behind its listeners
acceptor, tls_handshake               new connections, up to their first byte of Kafka's protocol
connection, transport_pair, route     one client's connection; its transports to client and broker; which broker it uses
broker, broker_registry, broker_queue one broker: its quotas, the addresses at which it is reached, its fair call queue
broker_dialer, cluster_query          connections that the proxy opens
upstream_probe, upstream_faults       whether a broker is reached without a login, and why not
bypass                                whether a broker sends clients past the proxy
sweeps, shutdown                      periodic work, and the stop
loop_lag                              measures how late the event loop is
config_reloader                       reads the configuration file again when it changes
"""
