"""Reads rules that are kept outside the configuration file (``quotas_from``): in a topic, or at the brokers.

quota_source     the interface of such a source of rules
topic_source     applies the rules of a topic on the event loop (``proxy.client_quotas.topic`` reads the topic)
broker_source    applies the brokers' own quotas, which it reads every few seconds
broker_reader    asks a broker for its quotas, in a thread
broker_rules     converts the quotas of a broker to rules, and compares these with the previous ones
forwarded_alter  delays the answer to a client that changes the brokers' quotas until the proxy applies the change
"""
