"""Runs background work: tasks whose errors are contained, threads, and this program's own Kafka clients.

isolation        logs and counts the unexpected error of a task or callback, so that the process can go on
in_thread        runs blocking calls in threads
loop_thread      runs an event loop in a thread of its own
admin_client     asks a cluster about its brokers, topics and configs, over aiokafka's connections
admin_requests   defines the requests and responses of the admin client
client_security  builds the arguments of aiokafka's clients: addresses, login and TLS settings
disk_access      finds out why a path cannot be written, and locks files
"""
