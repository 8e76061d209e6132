"""Rules from other places than the file (``quotas_from``): a topic, or the brokers' own quotas.

quota_source     the interface of such a place
topic_source     a topic's rules, put in force on the loop; ``proxy.client_quotas.topic`` reads the topic
broker_source    the brokers' quotas on the loop, read every few seconds
broker_reader    asks a broker for them, in a thread
broker_rules     makes rules of the answer, and finds what differs from the last one
forwarded_alter  a client's request to change the brokers' quotas, answered once the change holds here
"""
