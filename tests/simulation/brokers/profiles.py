"""What simulated brokers support: their listeners, and the versions of each API."""

from typing import Final, NamedTuple


class Listener(NamedTuple):
    """A listener that each broker has. ``requires_login`` says that a client has to log in with SASL/PLAIN first."""

    port: int
    requires_login: bool = False


CLIENT_PORT: Final = 9092
INTER_BROKER_PORT: Final = 9093
LISTENERS: Final = {"client": Listener(CLIENT_PORT), "internal": Listener(INTER_BROKER_PORT)}
LISTENERS_WITH_LOGIN: Final = {
    "client": Listener(CLIENT_PORT, requires_login=True),
    "internal": Listener(INTER_BROKER_PORT),
}

# The lowest and the highest version of each API, by its key. "validVersions" in Kafka's message files.
NEWEST: Final = {
    0: (3, 13), 1: (4, 16), 3: (1, 13), 8: (2, 9), 9: (1, 7), 10: (0, 6), 11: (0, 9), 12: (0, 4), 17: (0, 1),
    18: (0, 4), 19: (2, 7), 20: (1, 6), 22: (0, 5), 27: (0, 0), 36: (0, 2), 37: (0, 3), 48: (0, 1), 49: (0, 1),
    78: (1, 2), 79: (1, 2),
}  # fmt: skip
# What the newest broker offers: of some APIs one version more than Kafka 4.1 has, as a later Kafka will.
OF_TOMORROW: Final = NEWEST | {
    0: (3, 14), 1: (4, 19), 17: (0, 2), 19: (2, 8), 20: (1, 7), 36: (0, 3), 37: (0, 4), 48: (0, 2), 49: (0, 2),
    78: (1, 3),
}  # fmt: skip
# Kafka 3.9: no share groups, topic ids in Fetch alone.
VERSION_3_9: Final = {
    0: (3, 11), 1: (4, 16), 3: (1, 12), 8: (2, 9), 9: (1, 7), 10: (0, 6), 11: (0, 9), 12: (0, 4), 17: (0, 1),
    18: (0, 4), 19: (2, 7), 20: (1, 6), 22: (0, 5), 27: (0, 0), 36: (0, 2), 37: (0, 3), 48: (0, 1), 49: (0, 1),
}  # fmt: skip
# Kafka 2.4: no topic ids, no client quotas, and Produce without compact types.
VERSION_2_4: Final = {
    0: (3, 8), 1: (4, 11), 3: (1, 9), 8: (2, 8), 9: (1, 6), 10: (0, 3), 11: (0, 6), 12: (0, 4), 17: (0, 1),
    18: (0, 3), 19: (2, 5), 20: (1, 4), 22: (0, 2), 27: (0, 0), 36: (0, 1), 37: (0, 1),
}  # fmt: skip
PROFILES: Final = (NEWEST, VERSION_3_9, VERSION_2_4)
