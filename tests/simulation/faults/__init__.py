"""Everything that goes wrong in a world, by kind."""

from tests.simulation.faults import of_brokers, of_network, of_proxy
from tests.simulation.faults.kinds import KINDS

__all__ = ["KINDS", "of_brokers", "of_network", "of_proxy"]
