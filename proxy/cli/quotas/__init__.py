"""The ``kafka-quota-proxy quotas`` command, which shows and changes the quotas of a running proxy."""
