"""Rules from other places than the file (``quotas_from``): a topic, or the brokers' own quotas.

quota_source     the interface of such a place
topic_source     a topic's rules, applied on the loop; ``proxy.client_quotas.topic`` reads the topic
broker_source    the brokers' quotas, read every few seconds
broker_reader    asks a broker for them, in a thread
broker_rules     converts the answer to rules, and compares it with the last one
forwarded_alter  a client's request to change the brokers' quotas, answered once the change holds here
"""
