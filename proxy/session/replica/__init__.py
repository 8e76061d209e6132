"""Decides how much of a follower's fetch passes, and how much of its response (KIP-73). No I/O, no clock."""
