"""Work apart from the clients' connections: isolated tasks, threads, and this program's own Kafka clients.

isolation        a task or callback that fails alone: its error is logged and counted, and the process goes on
in_thread        a blocking call in a thread of its own
loop_thread      an event loop in a thread of its own
admin_client     asks a cluster about itself, over aiokafka's connections
admin_requests   its requests and answers
topic_client     the settings of aiokafka's producers and consumers
client_security  how all of them log in, and by which TLS
file_lock        lets one process at a time write in a directory
disk_access      what the process may do with a path
"""
