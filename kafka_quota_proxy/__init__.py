"""Kafka quotas, enforced in front of any broker: the one name under which everything here is installed and imported.

The four links in this folder lead to the folders of the repository, so that a checkout is imported like a wheel.
"""
