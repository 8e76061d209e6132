"""A follower's fetches: what of a request passes, and what of a response is held back (KIP-73). No I/O, no clock."""
