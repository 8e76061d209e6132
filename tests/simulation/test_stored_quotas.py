"""Tests of what administrators have stored: which rules can be in force, and what a description may show."""

from collections.abc import Mapping

import pytest

from tests.simulation.checks.administration import Administration
from tests.simulation.checks.check import Check, Quotas
from tests.simulation.checks.support import StandIn, found
from tests.simulation.ledger import Entity, Exchange
from tests.simulation.stored_quotas import StoredQuotas
from tests.simulation.wire import administration
from tests.simulation.wire.administration import EntityPart

KEY = "producer_byte_rate"
ETL = (EntityPart("client-id", "etl"),)
ADMIN = Entity("ANONYMOUS", "admin", "10.0.2.1")
IN_FILE = {"client-id": "web", KEY: "10KiB"}


class Told(Check):
    """Remembers the rules that it is told."""

    possible: tuple[Quotas, ...] = ()

    def rules_changed(self, *possible: Quotas) -> None:
        """Remember them."""
        self.possible = possible


class Administrator:
    """Sends requests in a world with a store, and answers them as a proxy would."""

    def __init__(self) -> None:
        self.world = StandIn(administers_quotas=True)
        self.told = Told(self.world)  # type: ignore[arg-type] # it stands in for the world
        self.stored = StoredQuotas(self.world, has_store=True, others=(self.told,))  # type: ignore[arg-type]
        self.world.scenario.stored = self.stored
        self.world.ledger.checks = (self.stored, Administration(self.world))  # type: ignore[arg-type]
        self.stored.file_applied([IN_FILE])

    def send(self, value: float | None, entity: tuple[EntityPart, ...] = ETL, *, is_dry_run: bool = False) -> Exchange:
        operation = administration.Operation(KEY, value or 0.0, remove=value is None)
        alterations = [administration.Alteration(entity, [operation])]
        frame = administration.alter_client_quotas.request(1, 0, "admin", alterations, validate_only=is_dry_run)
        return self._send(49, frame)

    def answer(self, exchange: Exchange, error_code: int = 0, message: str | None = None) -> None:
        result = administration.AlteredEntity(ETL, error_code, message)
        self.world.give(exchange, administration.alter_client_quotas.response(1, 0, [result]))

    def alter(self, value: float | None, entity: tuple[EntityPart, ...] = ETL, error_code: int = 0) -> None:
        self.answer(self.send(value, entity), error_code)

    def ask(self) -> Exchange:
        return self._send(48, administration.describe_client_quotas.request(1, 0, "admin"))

    def show(self, exchange: Exchange, etl: float | None, web: float | None = 10_240.0) -> None:
        limits = {"etl": etl, "web": web}
        entries = [
            administration.QuotaEntry([EntityPart("client-id", name)], [administration.QuotaValue(KEY, one)])
            for name, one in limits.items()
            if one is not None
        ]
        self.world.give(exchange, administration.describe_client_quotas.response(1, 0, entries))

    def crash(self) -> None:
        self.stored.proxy_ended(1, is_crash=True)

    def limits(self, name: str = "etl") -> list[object]:
        """Return the limits of a client-id in the sets of rules that may be in force."""
        found: dict[object, None] = {}
        for quotas in self.told.possible:
            rules: list[Mapping[str, object]] = [rule for rule in quotas if rule["client-id"] == name]
            found[rules[0][KEY] if rules else None] = None
        return list(found)

    def _send(self, api_key: int, frame: bytes) -> Exchange:
        return self.world.send(api_key, api_version=0, body=frame[4 + 8 + 2 + len("admin") :], entity=ADMIN)


@pytest.fixture
def admin() -> Administrator:
    return Administrator()


def test_until_it_is_acknowledged_a_change_may_hold_or_not(admin: Administrator) -> None:
    exchange = admin.send(100.0)
    assert admin.limits() == [100.0, None]
    admin.answer(exchange)
    assert admin.limits() == [100.0]
    exchange = admin.send(50.0)
    assert admin.limits() == [100.0, 50.0]
    admin.answer(exchange)
    assert admin.limits() == [50.0]


def test_a_refused_change_never_holds(admin: Administrator) -> None:
    admin.alter(100.0)
    admin.alter(50.0, error_code=44)
    assert admin.limits() == [100.0]


@pytest.mark.parametrize(("message", "holds"), [("it may apply later", True), ("the disk is full", False)])
def test_an_error_of_the_store_says_whether_the_outcome_is_open(
    admin: Administrator, message: str, holds: bool
) -> None:
    admin.alter(100.0)
    admin.answer(admin.send(200.0), 56, message)
    assert admin.limits() == ([200.0, 100.0] if holds else [100.0])
    admin.alter(300.0)
    assert admin.limits() == [300.0]


def test_of_two_changes_at_the_same_time_either_may_hold(admin: Administrator) -> None:
    one, other = admin.send(100.0), admin.send(50.0)
    admin.answer(one)
    admin.answer(other)
    assert admin.limits() == [100.0, 50.0]


def test_a_change_without_a_response_may_hold_until_one_after_a_restart_is_acknowledged(admin: Administrator) -> None:
    admin.send(100.0)
    admin.alter(50.0)
    assert admin.limits() == [100.0, 50.0]
    admin.crash()
    assert admin.limits() == [100.0, 50.0]
    admin.alter(20.0)
    assert admin.limits() == [20.0]


def test_the_file_hides_a_stored_rule(admin: Administrator) -> None:
    admin.alter(100.0)
    admin.stored.file_applied([{"client-id": "etl", KEY: 7}])
    assert admin.limits() == [7]
    admin.show(admin.ask(), 7.0, web=None)
    admin.stored.file_applied([IN_FILE])
    assert admin.limits() == [100.0]


def test_a_description_shows_what_is_in_force(admin: Administrator) -> None:
    admin.show(admin.ask(), None)
    admin.alter(100.0)
    admin.crash()
    admin.show(admin.ask(), 100.0)
    asked = admin.ask()
    admin.alter(None)
    admin.show(asked, 100.0)
    admin.show(admin.ask(), None)


@pytest.mark.parametrize(("etl", "web"), [(None, 10_240.0), (50.0, 10_240.0), (100.0, 1.0)])
def test_a_lost_or_wrong_limit_is_found(admin: Administrator, etl: float | None, web: float) -> None:
    admin.alter(100.0)
    with found("because of what was acknowledged"):
        admin.show(admin.ask(), etl, web)


def test_a_dry_run_changes_nothing(admin: Administrator) -> None:
    admin.alter(1_000.0)
    admin.answer(admin.send(2_000.0, is_dry_run=True))
    admin.show(admin.ask(), 1_000.0)
    with found("only"):
        admin.show(admin.ask(), 2_000.0)
