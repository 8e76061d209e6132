"""Runs background work: tasks whose errors are contained, threads, and this program's own Kafka clients.

isolation        logs and counts the unexpected error of a task or callback, so that the process can go on
in_thread        runs blocking calls in threads
loop_thread      runs an event loop in a thread of its own
admin_client     asks a cluster about its brokers, topics and configs, over aiokafka's connections
admin_requests   the requests and answers of the admin client
client_security  the addresses, logins and TLS settings of aiokafka's clients
disk_access      finds out why a path cannot be written, and locks a directory
"""
