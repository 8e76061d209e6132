"""All checks of a world."""

from typing import Final

from tests.simulation.checks.administration import Administration
from tests.simulation.checks.answers import Answers
from tests.simulation.checks.broker_ports import BrokerPorts
from tests.simulation.checks.check import Check
from tests.simulation.checks.connection_limits import ConnectionLimits
from tests.simulation.checks.cut_short import CutShort
from tests.simulation.checks.dials import Dials
from tests.simulation.checks.durability import Durability
from tests.simulation.checks.ends import Ends
from tests.simulation.checks.follower_fetches import FollowerFetches
from tests.simulation.checks.held_back import HeldBack
from tests.simulation.checks.in_sync import InSync
from tests.simulation.checks.isolation import Isolation
from tests.simulation.checks.levels import Levels
from tests.simulation.checks.liveness import Liveness
from tests.simulation.checks.memory import Memory
from tests.simulation.checks.quiet_clients import QuietClients
from tests.simulation.checks.quota_bounds import QuotaBounds
from tests.simulation.checks.refused_order import RefusedOrder
from tests.simulation.checks.replication_rates import ReplicationRates
from tests.simulation.checks.replication_room import ReplicationRoom
from tests.simulation.checks.request_rates import RequestRates
from tests.simulation.checks.slots import Slots
from tests.simulation.checks.throttle_amounts import ThrottleAmounts
from tests.simulation.checks.throttle_times import ThrottleTimes
from tests.simulation.checks.topic_changes import TopicChanges
from tests.simulation.checks.topic_room import TopicRoom
from tests.simulation.checks.usable import Usable
from tests.simulation.checks.usage_log import UsageLog
from tests.simulation.checks.work import Work

ALL: Final[tuple[type[Check], ...]] = (
    QuotaBounds,
    Answers,
    ThrottleTimes,
    ThrottleAmounts,
    Liveness,
    HeldBack,
    QuietClients,
    Usable,
    Dials,
    BrokerPorts,
    Memory,
    Isolation,
    InSync,
    ReplicationRates,
    ReplicationRoom,
    FollowerFetches,
    Durability,
    Administration,
    UsageLog,
    RequestRates,
    TopicChanges,
    TopicRoom,
    ConnectionLimits,
    Ends,
    CutShort,
    Slots,
    Levels,
    RefusedOrder,
    Work,
)
