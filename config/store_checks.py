"""Checks of ``store`` and of the right to change it: keys that need or exclude each other, doubtful administrators."""

from collections.abc import Mapping
from typing import Final

from kafka_quota_proxy.config.document import Document
from kafka_quota_proxy.config.principals import ANONYMOUS, UNKNOWN
from kafka_quota_proxy.config.quotas_from_checks import asks_broker
from kafka_quota_proxy.config.unvalidated import Report, list_at, mapping_at

_ADMINS: Final = ("principals", "admins")
_AT: Final = ("store",)
_TOPIC: Final = ("quotas_from",)
_TOKEN: Final = ("admin", "quotas_token_file")


def check_store(document: Document, report: Report, warn: Report) -> None:
    """Report faults that concern more than one key, and administrators that any client could be."""
    admins = list_at(document, *_ADMINS)
    for index, name in enumerate(admins):
        if name == UNKNOWN:
            message = f"{UNKNOWN} is every client whose login cannot be read; name users, and let them log in by SCRAM"
            report((*_ADMINS, index), message)
        elif name == ANONYMOUS:
            warn((*_ADMINS, index), f"{ANONYMOUS} is every client without a login: all of them may change quotas")
    principals = mapping_at(document, "principals") or {}
    if "forward_quota_requests" in principals and "admins" not in principals:
        message = "has no meaning without admins: all requests about quotas go to the broker"
        report(("principals", "forward_quota_requests"), message)
    has_topic = "quotas_from" in (document.data if isinstance(document.data, dict) else ())
    if has_topic and admins:
        line = document.line(_TOPIC)
        if asks_broker(document):
            why = "requests about quotas go to the broker, which has them and checks the rights"
        else:
            why = "administrators would be shown the quotas of this file and none of the topic"
        report(_ADMINS, f"cannot be given with quotas_from in line {line}; {why}; leave out one of them")
    has_token = _TOKEN[1] in (mapping_at(document, _TOKEN[0]) or {})
    store = mapping_at(document, *_AT)
    if store is None:
        if has_token:
            warn(_TOKEN, "is for changing quotas, of which none can be changed here: there is no store for them")
        return
    _check_place(store, report, warn)
    if has_topic:
        report(_AT, "cannot be given with quotas_from; one of them has the quotas that are not in this file")
    elif not admins and not has_token:
        message = (
            "keeps quotas that no user may change; name users in principals.admins, or give admin.quotas_token_file"
        )
        warn(_AT, message)
    location = (*_AT, "changes_per_second")
    if location[-1] in store and store[location[-1]] is None and not document.text(location):
        report(location, "has no value; write a number such as 100, or null for no limit")


def _check_place(store: Mapping[str, object], report: Report, warn: Report) -> None:
    if store.keys().isdisjoint(("directory", "kafka")):
        report(_AT, "names no place; give directory, or for a fleet kafka, with bootstrap_servers and topic")
    elif "directory" not in store:
        warn(_AT, "has no directory: started while the topic is away, this proxy would have no quotas but the file's")
