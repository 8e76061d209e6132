"""The program's own Kafka client, over aiokafka's connections: asks clusters, and writes to topics of its own.

client_security  builds the arguments of aiokafka's clients: addresses, login and TLS settings
loop_thread      runs such clients on an event loop in a thread of its own
own_address      finds out whether an address is one of the proxy's own
admin_client     asks a cluster about its brokers, topics and configs
admin_requests   defines the requests and responses of the admin client
topic_requests   creates the proxy's own topics
"""
