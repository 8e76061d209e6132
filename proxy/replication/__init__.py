"""Limits on replication, from the file and from the cluster's own configs."""
