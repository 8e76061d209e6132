"""``kafka-quota-proxy quotas`` shows and changes the quotas of a running proxy."""
