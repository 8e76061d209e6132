"""Decides how much of a follower's fetch, and of the leader's response, is forwarded (KIP-73). No I/O, no clock."""
