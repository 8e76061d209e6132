"""Runs ``kafka-quota-proxy quotas``, which shows and changes the quotas of a running proxy through its admin port."""

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from kafka_quota_proxy.config.errors import ConfigError
from kafka_quota_proxy.config.terms import read_terms_change
from kafka_quota_proxy.protocol.client_quotas import Alteration, Op
from kafka_quota_proxy.proxy.cli.admin_client import AdminClient, AdminPortError, Answer, ListedRule
from kafka_quota_proxy.proxy.cli.quotas.arguments import (
    UsageError,
    add_arguments,
    client_of,
    entity_in,
    names_in,
    settings_in,
)
from kafka_quota_proxy.proxy.cli.quotas.rules_file import (
    Difference,
    as_yaml,
    changes_of,
    differences,
    lines,
    not_in_yaml,
    read,
)
from kafka_quota_proxy.proxy.rules.codec import (
    MAX_BODY_BYTES,
    RequestedChanges,
    Result,
    status_as_json,
    written_changes,
    written_rule,
)
from kafka_quota_proxy.proxy.rules.model import (
    Entity,
    StoredRule,
    keys_of,
    names_of,
)
from kafka_quota_proxy.proxy.rules.text import format_status, shown_entity, shown_limits

_PROGRAM: Final = "kafka-quota-proxy quotas"
# The most changes that an import sends in one request. A usual file fits into one request, and the limit on changes
# delays only the requests after the first.
_BATCH: Final = 1_000
# The most bytes that such a request has, because names may be long. A single change is smaller than this.
_BATCH_BYTES: Final = MAX_BODY_BYTES // 2


__all__ = ["add_arguments", "execute"]


def execute(args: argparse.Namespace) -> int:
    """Run the action that the user chose, and return the exit status."""
    try:
        return _ACTIONS[args.action](args)
    except UsageError as error:
        sys.stderr.write(f"{_PROGRAM} {args.action}: {error}\n")
        return 2
    except ConfigError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    except (AdminPortError, OSError) as error:
        if isinstance(error, BrokenPipeError):
            raise
        sys.stderr.write(f"{_PROGRAM} {args.action}: {error}\n")
        return 1


# -- reading


def _describe(args: argparse.Namespace) -> int:
    rules = AdminClient(args.url).rules(names_in(args))
    if args.json:
        _print(json.dumps({"rules": [json.loads(_written(one)) for one in rules]}, indent=2))
    else:
        _print(
            *(
                f"{shown_entity(one.entity)}: {shown_limits(one.rule)} ({one.source}){format_status(one.status)}"
                for one in rules
            )
        )
    return 0


def _written(one: ListedRule) -> str:
    more: dict[str, object] = {} if one.status is None else {"now": status_as_json(one.status)}
    if one.shadowed_by is not None:
        more["shadowed_by"] = one.shadowed_by
    return written_rule(one.entity, one.rule, source=one.source, can_change=one.can_change, **more)


def _export(args: argparse.Namespace) -> int:
    rules = {one.entity: one.rule for one in AdminClient(args.url).rules({}) if one.can_change}
    _print(*as_yaml(rules))
    left_out = [(entity, reason) for entity, rule in rules.items() if (reason := not_in_yaml(entity, rule))]
    sys.stderr.writelines(f"{_PROGRAM}: left out: {shown_entity(entity)}: {reason}\n" for entity, reason in left_out)
    return 1 if left_out else 0


# -- changes


def _alter(args: argparse.Namespace) -> int:
    entity = entity_in(args)
    limits, terms = settings_in(args, entity)
    # The proxy keeps the keys that this request does not name, even if other clients change them meanwhile.
    changed_terms = {entity: read_terms_change(terms)} if terms else {}
    ops = tuple(Op(*limit) for limit in limits.items())
    return _change(client_of(args), RequestedChanges((_alteration(entity, ops),), changed_terms, args.dry_run), args)


def _delete(args: argparse.Namespace) -> int:
    entity = entity_in(args)
    ops = tuple(Op(key, None) for key in keys_of(entity))
    return _change(client_of(args), RequestedChanges((_alteration(entity, ops),), {}, args.dry_run), args)


def _alteration(entity: Entity, ops: tuple[Op, ...]) -> Alteration:
    return Alteration(tuple(names_of(entity).items()), ops)


def _change(client: AdminClient, changes: RequestedChanges, args: argparse.Namespace) -> int:
    answer = client.change(changes)
    done = [Difference(one.entity, one.old, one.new) for one in answer.results if one.error is None]
    changed = [one for one in done if one.old != one.new]
    if args.json:
        _print(answer.text.rstrip())
    else:
        _print(*(line for one in changed for line in lines(one)))
    return _conclude(len(changed), _not_done(answer.results), args)


def _import(args: argparse.Namespace) -> int:
    is_input = str(args.file) == "-"
    data = sys.stdin.buffer.read() if is_input else args.file.read_bytes()
    new = read(data, file="<stdin>" if is_input else str(args.file))
    client = client_of(args)
    rules = client.rules({})
    gone: dict[Entity, StoredRule] = {}
    if args.replace:
        # The rules that the proxy's configuration file overrides stay, because ``export`` does not print them, and
        # because they may apply at other proxies of the cluster.
        gone = {one.entity: one.rule for one in rules if one.can_change and one.entity not in new}
    old = {one.entity: one.rule for one in rules if one.shadowed_by is None}
    all_differences = (*differences(gone, dict.fromkeys(gone)), *differences(old, new))
    if not args.json:
        _print(*(line for one in all_differences for line in lines(one)))
    not_done = _NotDone()
    for batch in _batches(all_differences):
        answer = _change_when_allowed(client, changes_of(batch, is_dry_run=args.dry_run))
        not_done = not_done.plus(_not_done(answer.results))
        if args.json:
            _print(answer.text.rstrip())
    if args.json and not all_differences:
        _print(json.dumps({"dry_run": args.dry_run, "results": []}))
    return _conclude(len(all_differences) - not_done.refused - not_done.may_hold, not_done, args)


def _batches(all_differences: Iterable[Difference]) -> Iterator[list[Difference]]:
    """Split the differences into batches, each small enough for one request to the proxy."""
    batch: list[Difference] = []
    size_bytes = 0
    for one in all_differences:
        one_bytes = len(written_changes(changes_of([one], is_dry_run=False)))
        if batch and (len(batch) == _BATCH or size_bytes + one_bytes > _BATCH_BYTES):
            yield batch
            batch, size_bytes = [], 0
        batch.append(one)
        size_bytes += one_bytes
    if batch:
        yield batch


def _change_when_allowed(client: AdminClient, changes: RequestedChanges) -> Answer:
    """Send changes to the proxy. If it rejects them as too many, wait as long as it says, then send them again."""
    while True:
        answer = client.change(changes)
        if not answer.retry_after_s:
            return answer
        wait_s = answer.retry_after_s
        sys.stderr.write(f"{_PROGRAM} import: too many changes (store.changes_per_second); waiting for {wait_s} s\n")
        time.sleep(wait_s)


class _NotDone(NamedTuple):
    """Counts the entities whose changes the proxy refused, and those whose changes have an unknown outcome."""

    refused: int = 0
    may_hold: int = 0

    def plus(self, other: "_NotDone") -> "_NotDone":
        return _NotDone(self.refused + other.refused, self.may_hold + other.may_hold)


def _not_done(results: Iterable[Result]) -> _NotDone:
    """Print an error for each entity whose change was refused or has an unknown outcome, and count these entities."""
    errors = [one for one in results if one.error is not None]
    for one in errors:
        sys.stderr.write(f"{shown_entity(one.entity)}: {'may hold: ' if one.may_hold else ''}{one.error}\n")
    may_hold = sum(one.may_hold for one in errors)
    return _NotDone(len(errors) - may_hold, may_hold)


def _conclude(changed: int, not_done: _NotDone, args: argparse.Namespace) -> int:
    """Print a summary of the changes, and return the exit status."""
    entities = f"{changed} {'entity' if changed == 1 else 'entities'}"
    if not changed and not any(not_done):
        summary = "nothing to change"
    elif args.dry_run:
        summary = f"dry run: {entities} would be changed"
    else:
        summary = f"{entities} changed"
    if not_done.refused:
        summary += f", {not_done.refused} refused"
    if not_done.may_hold:
        summary += f", {not_done.may_hold} may hold; run {_PROGRAM} describe"
    if not args.json:
        _print(summary)
    return 1 if any(not_done) else 0


def _print(*output: str) -> None:
    sys.stdout.writelines(f"{line}\n" for line in output)


_ACTIONS: Final[Mapping[str, Callable[[argparse.Namespace], int]]] = {
    "describe": _describe,
    "alter": _alter,
    "delete": _delete,
    "export": _export,
    "import": _import,
}
