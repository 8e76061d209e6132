"""Reads quota rules that are kept outside the configuration file: in a topic, or as the brokers' own quotas.

The setting ``quotas_from`` selects which of the two is used::

quota_source     the interface of both
topic_source     applies the rules of a topic on the event loop (``proxy.client_quotas.topic`` reads the topic)
broker_source    applies the brokers' own quotas, which it reads every few seconds
broker_reader    asks a broker for its quotas, in a thread
broker_rules     converts the quotas of a broker to rules, and finds out which rules have changed since the last reading
forwarded_alter  delays the answer to a client that changes the brokers' quotas until the proxy applies the change
"""
