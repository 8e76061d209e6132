"""The running proxy: does all I/O between clients and brokers, and handles reloads and the shutdown.

server, active_rules   the running proxy; the quota rules in force
clients, brokers       the connections of clients; the brokers behind the proxy
route                  what all connections from one listener to one broker share
listener_state         what all connections of a listener share
replication_limits     the limits on replication of each broker
tls                    certificates, the users that they name, and the transport with TLS
sweeps, shutdown       periodic work, and the stop
serving_loop, loop_lag the event loop, and how late it is
config_reloader        reads the configuration file again when it changes
"""
