"""Keeps the limits on replication traffic, which come from the configuration file or from the cluster's own configs."""
