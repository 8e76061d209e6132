"""The clients' connections: how they are accepted, served, limited and ended, and what the log says about clients.

acceptor, tls_handshake             new connections, up to their first byte of Kafka's protocol
refused_sockets                     connections that are refused
connection, transport_pair          one client's connection; its transports to client and broker
relay, relay_sockets                the bodies of requests and responses, from socket to socket
connection_limits, time_checks      how many connections there may be, how long they stay, how much they hold
latency                             how long requests and responses are inside the proxy
half_close, orphaned_connections    what is left of a connection after the proxy or the client has closed its side
closing_transports                  what closed transports still hold
throttle_log                        which clients are throttled
unlimited_log                       which clients no rule limits
"""
