"""The brokers' own quotas as rules, followed as they change (``quotas_from: broker``).

``told`` makes rules of what a broker answers, and says what differs; ``passing`` is a request to change quotas on its
way through the proxy, whose answer waits until the change holds here. Both are without I/O. ``reader`` asks, in a
thread; ``follower`` is the loop's part.
"""
