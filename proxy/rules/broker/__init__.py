"""Follows the quotas that are set at the brokers themselves.

broker_source    the source: reads the quotas again and again
broker_reader    reads them from one broker
broker_rules     converts them to rules
"""
