"""Sockets, TLS, timers, listeners, brokers to dial and reloads: all I/O on the way of a client's bytes.

server             the listeners and the periodic sweeps
acceptor           takes connections from a listening socket
connection         two transports and one timer around a session
broker             one broker and what its clients used of their quotas
broker_dialer      connects to brokers
config_reloader    reads the file again when it changes
"""
