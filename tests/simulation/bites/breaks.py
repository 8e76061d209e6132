"""All breaks."""

from typing import Final

from tests.simulation.bites import mutate
from tests.simulation.bites.fixed_bugs import FIXED_BUGS
from tests.simulation.bites.model import Break
from tests.simulation.bites.quota import QUOTA
from tests.simulation.bites.rest import CLIENT_QUOTAS, FAIR_QUEUE, PROTOCOL, REPLICATION, USAGE
from tests.simulation.bites.server import SERVER
from tests.simulation.bites.session import SESSION

BREAKS: Final[tuple[Break, ...]] = (
    *FIXED_BUGS,
    *SESSION,
    *SERVER,
    *QUOTA,
    *FAIR_QUEUE,
    *REPLICATION,
    *CLIENT_QUOTAS,
    *USAGE,
    *PROTOCOL,
    *mutate.kept(),
)
