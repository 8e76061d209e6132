"""Tests which name is taken for a misspelt one."""

from hypothesis import given
from hypothesis import strategies as st

from kafka_quota_proxy.config.spelling import nearest
from tests.support.cases import each_case


@each_case(
    "name, found",
    [
        ("slow", "slow"), ("slo", "slow"), ("sloow", "slow"), ("slot", "slow"), ("slwo", "slow"), ("lsow", "slow"),
        ("my-ap", "my-app"), ("myapp", "my-app"), ("solw-x", None), ("wols", None), ("sl", None), ("", None),
        ("ab", None),
    ],
)  # fmt: skip
def test_a_name_is_one_edit_away(name: str, found: str | None) -> None:
    assert nearest(name, ["my-app", "slow", "ac"]) == found


def test_the_same_name_is_nearer_than_one_with_an_edit() -> None:
    assert nearest("app", ["apps", "app"]) == "app"


@given(st.text("abc", min_size=3, max_size=6), st.data())
def test_any_one_edit_is_found(name: str, data: st.DataObject) -> None:
    at, character = data.draw(st.integers(0, len(name) - 1)), data.draw(st.sampled_from("abcd"))
    edited = {
        name[:at] + character + name[at:],
        name[:at] + character + name[at + 1 :],
        name[:at] + name[at + 1 :],
        name[:at] + name[at : at + 2][::-1] + name[at + 2 :],
    }

    for other in edited:
        assert nearest(other, [name]) == (name if len(other) >= 3 else None)
