"""Makes the actors of a world by their kinds."""

from collections.abc import Callable
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Final, Protocol

from tests.simulation import configuration
from tests.simulation.clients.admin import ALTER, CREATE, DELETE, DESCRIBE, GROW, Admin
from tests.simulation.clients.adversary import MOVES, Adversary
from tests.simulation.clients.connection import Login, Setting
from tests.simulation.clients.consumer import Consumer
from tests.simulation.clients.crowd import Crowd
from tests.simulation.clients.group_member import GroupMember
from tests.simulation.clients.impostor import Impostor
from tests.simulation.clients.producer import Load, Producer
from tests.simulation.clients.profiles import CLUMSY, DEAF, HALTING, HASTY, HEALTHY, OLD, PROFILES, RUDE
from tests.simulation.clients.share_member import ShareMember
from tests.simulation.clients.stranger import FLOOD, MANNERS, Stranger
from tests.simulation.ledger import Entity

if TYPE_CHECKING:
    from tests.simulation.scenario import Scenario

_HOSTS: Final = 3
_PATIENT_SHARE: Final = 0.6  # of healthy clients
# The fair call queue halves its costs every 5 s. Right after that a check knows the levels.
_BURST_AFTER_MS: Final = 1_500.0
_NEW_SHARE: Final = 0.8  # of rude administrators
_STEADY: Final = 60, 150.0  # how many batches a steady producer makes, and how often
_SIZES: Final = (
    (200, 2_000), (1_000, 4_000), (4_000, 16_384), (4_000, 16_384), (16_384,), (16_384, 60_000), (500, 60_000, 200_000),
    (1_000_000,),
)  # fmt: skip


class Actor(Protocol):
    """Whoever lives in a world and leaves at its end."""

    def start(self) -> None:
        """Begin."""

    def stop(self) -> None:
        """Begin an orderly end."""

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to do after ``stop``."""


def _setting(scenario: "Scenario", name: str, random: Random, *, is_admin: bool = False) -> Setting:
    setup = scenario.setup
    host = f"10.0.2.{random.randint(1, _HOSTS)}"
    # Most clients have the same names, so that they share a bucket.
    shared = scenario.world.random_of("names")
    theme = scenario.theme
    weights = (1.0 - theme.second_share, theme.second_share)
    users, client_ids = (
        random.choices(shared.sample(names, 2), weights) for names in (configuration.USERS, configuration.CLIENT_IDS)
    )
    user = configuration.ADMIN if is_admin else users[0]
    is_rude = not is_admin and random.random() < theme.rude_share
    profile = RUDE if is_rude and not setup.has_login else random.choice(PROFILES[:-1])
    broken = 0.0 if is_admin else theme.broken_share
    if theme.metadata_ms is not None and profile is not RUDE:
        profile = profile._replace(metadata_age_ms=theme.metadata_ms)
    habits = random.choices((HEALTHY, CLUMSY, theme.broken), (0.7 - 0.7 * broken, 0.3 - 0.3 * broken, broken))[0]
    if not is_admin and scenario.world.random_of(f"deafness of {name}").random() < theme.deaf_share:
        habits = DEAF
    entity = Entity(user if setup.has_login else "ANONYMOUS", client_ids[0], host)
    return Setting(
        name=name,
        profile=OLD if random.random() < theme.old_share else profile,
        entity=entity,
        source_host="10.0.3.1" if setup.proxy_header else host,
        bootstrap=setup.bootstrap,
        habits=habits,
        login=Login(user, configuration.PASSWORD) if setup.has_login else None,
        proxy_header=setup.proxy_header,
        port_offset=scenario.world.random_of(f"port of {name}").choice((0, setup.second_port)),
        forgets_bootstrap=scenario.world.random_of("memory of clients").random() < theme.forgetful_share,
        is_patient=habits is HEALTHY and scenario.world.random_of(f"patience of {name}").random() < _PATIENT_SHARE,
    )


def _producer(scenario: "Scenario", name: str, random: Random) -> Producer:
    """Draw a producer. What it sends in the whole run is bounded, so that no world takes too long."""
    most = random.choice(scenario.theme.batches or (5, 20, 60))
    every_ms = random.choice(scenario.theme.every_ms or (2.0, 10.0, 100.0, scenario.plan.horizon_ms / most))
    if scenario.world.random_of(f"pace of {name}").random() < scenario.theme.steady_share:
        most, every_ms = _STEADY
    setting = _setting(scenario, name, random)
    acks = 0 if random.random() < scenario.theme.acks_zero_share else random.choice((-1, -1, 1))
    if not acks and setting.profile is RUDE:
        every_ms = scenario.plan.horizon_ms / most  # it would be gone before anything has happened
    return Producer(
        scenario.world,
        setting,
        [random.choice(configuration.TOPICS)],
        Load(scenario.theme.sizes or random.choice(_SIZES), every_ms, random.choice((1, 1, 4)), most),
        acks=acks,
        is_idempotent=random.random() < scenario.theme.idempotent_share,
        client_ids=configuration.CLIENT_IDS if random.random() < scenario.theme.fickle_share else (),
    )


def _of_user(
    scenario: "Scenario", name: str, random: Random, load: Load, user: str = configuration.USERS[0]
) -> Producer:
    setting = _setting(scenario, name, random)._replace(habits=HEALTHY)
    if setting.login is not None:
        login = Login(user, configuration.PASSWORD)
        setting = setting._replace(login=login, entity=setting.entity._replace(user=user))
    return Producer(scenario.world, setting, [random.choice(configuration.TOPICS)], load)


def _burst_producer(scenario: "Scenario", name: str, random: Random) -> Producer:
    load = Load((500,), 20_000.0, random.choice((30, 40)), 80, _BURST_AFTER_MS)
    return _of_user(scenario, name, random, load, configuration.USERS[1])


def _halting_producer(scenario: "Scenario", name: str, random: Random) -> Producer:
    setting = _setting(scenario, name, random)._replace(habits=HALTING, is_patient=True)
    return Producer(scenario.world, setting, [random.choice(configuration.TOPICS)], Load((300_000,), 500.0, 1, 1))


def _consumer(scenario: "Scenario", name: str, random: Random) -> Consumer:
    return Consumer(
        scenario.world,
        _setting(scenario, name, random),
        [random.choice(configuration.TOPICS)],
        max_wait_ms=random.choice((-1, 500, 5_000)),
        pause_ms=random.choice((2.0, 20.0, 200.0, 2_000.0)),
    )


def _named(scenario: "Scenario", name: str, random: Random, client_id: str) -> Setting:
    """Return the setting of a client that behaves, with this client-id."""
    setting = _setting(scenario, name, random)
    entity = setting.entity._replace(client_id=client_id)
    return setting._replace(entity=entity, habits=HEALTHY, is_patient=True)


def _idle_consumer(scenario: "Scenario", name: str, random: Random) -> Consumer:
    return Consumer(
        scenario.world,
        _named(scenario, name, random, configuration.IDLE),
        [configuration.TOPICS[1]],
        max_wait_ms=random.choice((-1, 500, 5_000)),
        pause_ms=random.choice((2.0, 20.0)),
    )


def _lone_consumer(scenario: "Scenario", name: str, random: Random) -> Consumer:
    setting = _named(scenario, name, random, configuration.LONE)
    return Consumer(scenario.world, setting, [configuration.TOPICS[0]], pause_ms=2.0)


def _trickle_producer(scenario: "Scenario", name: str, random: Random) -> Producer:
    setting = _named(scenario, name, random, configuration.LONE)
    load = Load((200, 1_000), random.choice((300.0, 2_000.0, 7_000.0)), 1, 60)
    return Producer(scenario.world, setting, [configuration.TOPICS[1]], load)


def _member(
    scenario: "Scenario", name: str, random: Random, kind: type[GroupMember | ShareMember]
) -> GroupMember | ShareMember:
    setting, topics = _setting(scenario, name, random), [random.choice(configuration.TOPICS)]
    group = "share" if kind is ShareMember else "group"
    return kind(scenario.world, setting, topics, group, pause_ms=random.choice((10.0, 100.0, 1_000.0)))


def _share_member(scenario: "Scenario", name: str, random: Random) -> Actor:
    if scenario.setup.broker_version:  # older brokers have no share groups
        return _consumer(scenario, name, random)
    return _member(scenario, name, random, ShareMember)


def _topic_admin(scenario: "Scenario", name: str, random: Random) -> Admin:
    setting = _setting(scenario, name, random)
    is_new = scenario.world.random_of(f"age of {name}").random() < _NEW_SHARE
    if setting.profile is RUDE and is_new and not scenario.setup.broker_version:
        setting = setting._replace(profile=HASTY)
    return Admin(
        scenario.world,
        setting,
        every_ms=random.choice((50.0, 500.0, 2_000.0)),
        kinds=(CREATE, CREATE, GROW, DELETE),
        most_operations=random.choice((5, 20)),
        again_share=scenario.world.random_of(f"memory of {name}").choice((0.0, 0.3, 0.9)),
    )


def _quota_admin(scenario: "Scenario", name: str, random: Random) -> Admin:
    # All administrators want something of the same entities.
    stored = scenario.world.random_of("stored quotas")
    choices = configuration.draw_stored(
        stored, has_login=scenario.setup.has_login, plain_share=scenario.theme.plain_store_share
    )
    is_plain = len(choices) == 1
    return Admin(
        scenario.world,
        _setting(scenario, name, random, is_admin=True),
        every_ms=700.0 if is_plain else random.choice((50.0, 500.0, 2_000.0)),
        kinds=(ALTER,) if is_plain else (ALTER, ALTER, DESCRIBE),
        choices=choices,
        dry_share=0.15,
        most_operations=random.choice((5, 20)),
    )


def auditor(scenario: "Scenario", name: str, random: Random) -> Admin:
    """Return an administrator who looks at all quotas, until an answer comes."""
    setting = _setting(scenario, name, random, is_admin=True)._replace(habits=HEALTHY)
    return Admin(scenario.world, setting, every_ms=1_000.0, kinds=(DESCRIBE,))


def _stranger(scenario: "Scenario", name: str, random: Random) -> Stranger:
    manner = random.choice(MANNERS)
    return Stranger(
        scenario.world,
        _setting(scenario, name, random),
        manner,
        every_ms=random.choice((200.0, 2_000.0)),
        stays_ms=random.choice((500.0, 20_000.0)),
        at_once=random.choice((5, 40)) if manner == FLOOD else 1,
    )


def _impostor(scenario: "Scenario", name: str, random: Random) -> Impostor:
    return Impostor(scenario.world, _setting(scenario, name, random))


def _adversary(scenario: "Scenario", name: str, random: Random) -> Adversary:
    """Draw an adversary. Most know a few moves only, so that one of them happens often."""
    setting = _setting(scenario, name, random)._replace(habits=HEALTHY, is_patient=False)
    moves = MOVES if random.random() < 0.3 else tuple(random.sample(MOVES, 2))
    every_ms = random.choice((1_000.0, 3_000.0))
    return Adversary(scenario.world, setting, random.choice(configuration.TOPICS), moves, every_ms=every_ms)


def _crowd(scenario: "Scenario", name: str, random: Random) -> Crowd:
    setting = _setting(scenario, name, random)._replace(login=None, habits=HEALTHY)
    return Crowd(scenario.world, setting, 40, every_ms=random.choice((2_000.0, 4_000.0)), most=4)


KINDS: Final[dict[str, Callable[["Scenario", str, Random], Actor]]] = {
    "producer": _producer,
    "steady producer": partial(_of_user, load=Load((500,), 1_000.0, 1, 60)),
    "halting producer": _halting_producer,
    "late burst producer": partial(_of_user, load=Load((500,), 40_000.0, 20, 20, _BURST_AFTER_MS)),
    "burst producer": _burst_producer,
    "consumer": _consumer,
    "idle consumer": _idle_consumer,
    "lone consumer": _lone_consumer,
    "trickle producer": _trickle_producer,
    "group member": partial(_member, kind=GroupMember),
    "share member": _share_member,
    "topic admin": _topic_admin,
    "quota admin": _quota_admin,
    "stranger": _stranger,
    "impostor": _impostor,
    "crowd": _crowd,
    "adversary": _adversary,
}
# How often a kind is drawn where no theme wants it.
WEIGHTS: Final[dict[str, int]] = {
    "producer": 12,
    "consumer": 9,
    "group member": 2,
    "share member": 1,
    "topic admin": 2,
    "quota admin": 4,
    "stranger": 1,
    "impostor": 1,
}
