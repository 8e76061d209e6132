"""Work apart from the clients' connections: isolated tasks, threads, and this program's own Kafka clients.

isolation        a task or callback that fails alone: its error is logged and counted, and the process goes on
in_thread        blocking calls in threads
loop_thread      an event loop in a thread of its own
admin_client     asks a cluster about itself, over aiokafka's connections
admin_requests   its requests and answers
client_security  the addresses, logins and TLS of aiokafka's clients
disk_access      what the process may do with a path, and a lock for a directory
"""
