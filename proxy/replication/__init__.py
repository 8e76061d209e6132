"""Keeps limits on replication, which come from the configuration file or from the cluster's own configs."""
