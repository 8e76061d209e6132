"""Names what the next request of a client waits for."""

from enum import Enum


class BlockedBy(Enum):
    """What the next request of a client waits for. The value is the name that users see, such as in ``/clients``.

    A response that is held back, a mute and an answer keep back all requests of a connection. The others keep back the
    request at its front.
    """

    THROTTLE_TIME = "throttle_time"  # the client was told to wait, and the time is not over
    QUOTA = "quota"  # its turn in the line of a bucket, or an answer that shows what is left of the limit
    FAIR_CALL_QUEUE = "fair_call_queue"  # a slot at the broker
    REPLICATION_QUOTA = "replication_quota"  # room for a throttled follower
    QUOTA_CHANGE = "quota_change"  # a change of quotas that is being stored, or read back
    EARLIER_ANSWERS = "earlier_answers"  # answers that this request or its answer must not overtake
    DELAYED_ANSWER = "delayed_answer"  # an answer that the proxy holds back, with `enforcement: delay`
    UNREAD_ANSWERS = "unread_answers"  # the client, which does not read what it was sent
    BROKER = "broker"  # the connection to the broker
    OTHER_CONNECTIONS = "other_connections"  # their turn, after this one has had many requests in a millisecond
    END = "end"  # nothing: the connection is about to be closed
