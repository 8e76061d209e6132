"""Where administered quotas are kept: ``manager`` decides on a change and hands it to one of these.

store       what a manager asks of it
choice       which one a configuration asks for
directory    one on a disk of this proxy's own; ``disk`` has its threads
topic        one in a Kafka topic that a fleet shares
topic_state  what is in force of that topic, without I/O
writer       who writes to it, and ``written`` what is asked of him
last_known   what was in force of it last, on a disk
"""
