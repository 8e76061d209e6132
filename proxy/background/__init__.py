"""Work that runs beside the clients' connections: isolated tasks, threads, and this program's own Kafka clients.

isolation     a task or callback whose failure ends it alone: logged, counted, and the process serves on
in_thread     calls that block, each in a thread of its own
admin_client  kafka-python's admin client, as the file says
topic_client  aiokafka's settings for this program's own producers and consumers
kafka_sasl    how both log in
file_lock     one process at a time in a directory
disk_access   what a user may do with a path
"""
