"""Tests the order and the filter of ``top``, and what each key does."""

from dataclasses import replace

from kafka_quota_proxy.proxy.admin.clients import rows as query
from kafka_quota_proxy.proxy.cli.top.view import KINDS, SORTS, View, after_key, identity, selected_index
from tests.support.client_rows import row, unlimited

ROWS = (
    row("near", throttled=False, utilisation=0.9, rate=9.0, connections=1, throttle_seconds_last_minute=0.0),
    row("busy", throttle_seconds_last_minute=58.9, utilisation=1.0, rate=5.0, connections=2),
    row("calm", throttle_seconds_last_minute=3.0, utilisation=1.2, rate=3.0, user="bob"),
    unlimited("free", user="alice", addresses=["192.168.1.9"], kind="fetch", rate=7.0, connections=9),
)


def names(view: View) -> list[str]:
    return [one["client_id"] for one in view.rows(ROWS)]


def pressed(*keys: str, view: View | None = None) -> View:
    now = view or View()
    for key in keys:
        after = after_key(now, key, now.rows(ROWS))
        assert after is not None
        now = after
    return now


def test_orders_and_kinds_are_those_of_the_admin_port() -> None:
    assert query.SORTS == SORTS
    assert tuple(query.KINDS) == KINDS


def test_rows_come_in_the_wanted_order() -> None:
    orders = {
        "throttled": ["busy", "calm", "near", "free"],
        "utilisation": ["calm", "busy", "near", "free"],
        "rate": ["near", "free", "busy", "calm"],
        "connections": ["free", "calm", "busy", "near"],
        "user": ["busy", "near", "free", "calm"],
        "client_id": ["busy", "calm", "free", "near"],
    }
    assert {sort: names(View(sort=sort)) for sort in orders} == orders
    one, other = row("a", throttle_seconds_last_minute=58.1), row("b", throttle_seconds_last_minute=58.4)
    assert View().rows([other, one]) == [one, other], "clients that are throttled alike keep their places"


def test_a_filter_finds_names_addresses_and_places_of_rules() -> None:
    texts = {"BUSY": ["busy"], "bob": ["calm"], "192.168": ["free"], "yaml:7": ["busy", "calm", "near"], "?": []}

    assert {text: names(View(filter=text)) for text in texts} == texts


def test_keys_change_order_kind_and_pause() -> None:
    assert pressed("s").sort == "utilisation"
    assert pressed(*"ssssss").sort == "throttled"
    assert pressed("k").kind == "produce"
    assert pressed(*"kk").query() == {"sort": "throttled", "limit": "100", "kind": "fetch"}
    assert names(pressed(*"kk")) == ["free"]
    assert pressed("p").is_paused
    assert not pressed("p", " ").is_paused
    assert pressed("?") == View()
    assert after_key(View(), "q", []) is None


def test_a_filter_is_typed_and_keys_are_letters_meanwhile() -> None:
    view = pressed("/", "s", "q", "x", "backspace", "up", "enter")

    assert (view.filter, view.is_typing, view.sort) == ("sq", False, "throttled")
    assert view.query()["limit"] == "1000"
    assert pressed("/", "a", "esc") == View()
    assert pressed("esc", view=view) == View()


def test_the_selection_follows_its_client() -> None:
    view = pressed("down", "down", "down")
    assert view.selected == identity(ROWS[0])
    assert selected_index(replace(view, sort="rate"), View(sort="rate").rows(ROWS)) == 0
    assert pressed("up", "up", "up", "up", view=view).selected == identity(ROWS[1])
    assert pressed("page down", "page down").selected == identity(ROWS[3])
    assert after_key(View(), "down", []) == View()


def test_details_ask_for_the_selected_client() -> None:
    view = pressed("down", "down", "enter")

    assert view.has_details
    assert view.query() == {
        "sort": "throttled",
        "limit": "100",
        "kind": "produce",
        "details": "true",
        "user": "bob",
        "client_id": "calm",
    }
    assert pressed("esc", view=view) == replace(view, has_details=False)
    assert pressed("up", view=view).selected == view.selected
    shared = after_key(View(), "enter", [row(None, user="")])
    assert shared is not None
    assert (shared.query()["user"], "client_id" in shared.query()) == ("", False)
