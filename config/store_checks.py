"""Checks the section ``store``, and the settings that say who may change the quotas in the store.

Also reports ``ANONYMOUS`` and ``UNKNOWN`` as names of administrators, because they stand for any client.
"""

from typing import Final

from kafka_quota_proxy.config.principals import ANONYMOUS, UNKNOWN
from kafka_quota_proxy.config.quotas_from_checks import asks_broker
from kafka_quota_proxy.config.unvalidated import UncheckedFile

_ADMINS: Final = ("principals", "admins")
_STORE: Final = ("store",)
_TOKEN: Final = ("admin", "quotas_token_file")


def check_store(file: UncheckedFile) -> None:
    """Report faults of ``store`` that concern several keys, and administrators whose name any client could have."""
    admins = file.list_at(*_ADMINS)
    has_topic = "quotas_from" in file.top
    _check_admins(file, admins)
    if has_topic and admins:
        why = "administrators would see the quotas of this file, but none of the topic"
        if asks_broker(file):
            why = "requests about quotas go to the broker, which stores them and checks permissions"
        line = file.line(("quotas_from",))
        file.error(_ADMINS, f"cannot be given with quotas_from in line {line}; {why}; leave out one of them")
    has_token = _TOKEN[1] in (file.mapping_at(_TOKEN[0]) or {})
    store = file.mapping_at(*_STORE)
    if store is None:
        if has_token:
            file.warn(_TOKEN, "is for changing quotas, but quotas cannot be changed without a store")
        return
    if store.keys().isdisjoint(("directory", "kafka")):
        file.error(
            _STORE, "has no location; give directory, or for several proxies kafka with bootstrap_servers and topic"
        )
    elif "directory" not in store:
        message = (
            "has no directory: if the proxy starts while the topic is unavailable, only the quotas of the file apply"
        )
        file.warn(_STORE, message)
    if has_topic:
        file.error(_STORE, "cannot be given with quotas_from; remove one of them")
    elif not admins and not has_token:
        message = "has no user who may change quotas; name users in principals.admins"
        file.warn(_STORE, f"{message}, or give admin.quotas_token_file")


def _check_admins(file: UncheckedFile, admins: list[object]) -> None:
    for index, name in enumerate(admins):
        at = (*_ADMINS, index)
        if name == UNKNOWN:
            message = (
                f"{UNKNOWN} is every client whose login cannot be read; name users, and let them log in with SCRAM"
            )
            file.error(at, message)
        elif name == ANONYMOUS:
            file.warn(at, f"{ANONYMOUS} is every client without a login: all of them may change quotas")
    principals = file.mapping_at("principals") or {}
    if "forward_quota_requests" in principals and "admins" not in principals:
        message = "has no effect without admins: all requests about quotas go to the broker"
        file.error(("principals", "forward_quota_requests"), message)
