"""Which replicas are throttled by what, and what becomes of a follower's fetches. No I/O, no clock."""
