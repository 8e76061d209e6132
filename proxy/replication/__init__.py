"""Determines the limits on replication traffic, from the configuration file or the cluster's own configs."""
