"""``kafka-quota-proxy quotas``: which quotas a proxy has, and changes of them, through its admin port."""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from kafka_quota_proxy.config.document import Odd, parse
from kafka_quota_proxy.config.errors import ConfigError, InvalidConfigError, TermsError, TokenFileError, UnitError
from kafka_quota_proxy.config.limits import parse_limit
from kafka_quota_proxy.config.model import DEFAULT, EntityName
from kafka_quota_proxy.config.terms import TERMS, read_terms, read_terms_change
from kafka_quota_proxy.config.token_file import read_token
from kafka_quota_proxy.protocol.client_quotas import Alteration, Op
from kafka_quota_proxy.proxy.cli.quotas.client import Answer, Client, NotDoneError, Rule
from kafka_quota_proxy.proxy.cli.quotas.diff import Difference, changes_of, differences, lines
from kafka_quota_proxy.proxy.cli.quotas.rules_file import as_json, as_yaml, not_in_yaml, read
from kafka_quota_proxy.proxy.client_quotas.formats.format_rule import shown_entity, shown_limits
from kafka_quota_proxy.proxy.client_quotas.formats.json_codec import (
    MAX_BODY_BYTES,
    Changes,
    Result,
    written_changes,
    written_rule,
)
from kafka_quota_proxy.proxy.client_quotas.formats.rule_status import format_status, status_as_json
from kafka_quota_proxy.proxy.client_quotas.rules.entity import (
    CLIENT_ID,
    ENTITY_TYPES,
    IP,
    USER,
    Entity,
    StoredRule,
    entity_of,
    keys_of,
    names_of,
)

_PROGRAM: Final = "kafka-quota-proxy quotas"
_URL: Final = "http://127.0.0.1:9308"
_TOKEN_FILE: Final = "KAFKA_QUOTA_PROXY_TOKEN_FILE"  # noqa: S105 - the name of a variable
# Of a file: so many at once that the limit of changes does not stand in the way of a usual file.
_BATCH: Final = 1_000
# Names may be long. No change has more bytes than this by itself.
_BATCH_BYTES: Final = MAX_BODY_BYTES // 2
_EXAMPLES: Final = {
    "describe": "example: kafka-quota-proxy quotas describe --user alice --json",
    "alter": (
        "examples: kafka-quota-proxy quotas alter --user alice --default-client-id --set producer_byte_rate=10MiB\n"
        "          kafka-quota-proxy quotas alter --client-id etl --unset consumer_byte_rate --dry-run\n"
        "          kafka-quota-proxy quotas alter --client-id etl --set expires=2026-12-01T00:00:00Z"
    ),
    "delete": "example: kafka-quota-proxy quotas delete --ip 10.0.0.7 --token-file quotas.token",
    "export": "example: kafka-quota-proxy quotas export > quotas.yaml",
    "import": "example: kafka-quota-proxy quotas import quotas.yaml --dry-run",
}


class _UsageError(Exception):
    """Wrong usage; the text says what would be right."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``quotas``."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)

    def action(name: str, summary: str, run: Callable[[argparse.Namespace], int]) -> argparse.ArgumentParser:
        subparser = actions.add_parser(
            name,
            help=summary,
            description=f"{summary.capitalize()}.",
            epilog=_EXAMPLES[name],
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        subparser.set_defaults(run=run)
        subparser.add_argument("--url", default=_URL, help=f"the admin port of the proxy (default {_URL})")
        return subparser

    describe = action("describe", "show the quotas of a proxy, and where each is set", _describe)
    _add_entity(describe)
    form = describe.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="an object with a list of rules; bytes, milliseconds")
    form.add_argument("--yaml", action="store_true", help="as quotas: of a configuration has them")
    alter = action("alter", "set or remove limits of one entity, for the next request on", _alter)
    _add_entity(alter)
    alter.add_argument(
        "--set",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="a limit, or one of " + ", ".join(TERMS) + ", as quotas: of a configuration has it; may be repeated",
    )
    alter.add_argument("--unset", metavar="KEY", action="append", default=[], help="remove it; may be repeated")
    _add_change(alter)
    delete = action("delete", "remove all quotas of one entity", _delete)
    _add_entity(delete)
    _add_change(delete)
    export = action("export", "write what was set through the proxy as a file to import, or to put into one", _export)
    export.add_argument("--json", action="store_true", help="JSON, which can say all that there may be")
    import_ = action("import", "set what a file says: of each entity in it these limits and no others", _import)
    import_.add_argument("file", metavar="FILE", type=Path, help="what export writes; - for the standard input")
    import_.add_argument(
        "--replace",
        action="store_true",
        help="remove what was set of all other entities, but for what the proxy's file hides",
    )
    _add_change(import_)


def _add_entity(parser: argparse.ArgumentParser) -> None:
    for kind, default, who in (
        (USER, "--default-user", "a user, without User:"),
        (CLIENT_ID, "--default-client-id", "a client-id"),
        (IP, "--default-ip", "an address"),
    ):
        one = parser.add_mutually_exclusive_group()
        one.add_argument(f"--{kind}", metavar=kind.upper(), help=who)
        one.add_argument(default, dest=kind.replace("-", "_"), action="store_const", const=DEFAULT, help="<default>")


def _add_change(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dry-run", action="store_true", help="show what would change, and what would be refused")
    parser.add_argument(
        "--json", action="store_true", help="print what became of it as the proxy tells it, an object in a line"
    )
    parser.add_argument(
        "--token-file",
        metavar="FILE",
        type=Path,
        help=f"its first line is the token of admin.quotas_token_file (else ${_TOKEN_FILE} names it)",
    )


def execute(args: argparse.Namespace) -> int:
    """Do it; return the exit status."""
    run: Callable[[argparse.Namespace], int] = args.run
    try:
        return run(args)
    except _UsageError as error:
        sys.stderr.write(f"{_PROGRAM} {args.action}: {error}\n")
        return 2
    except ConfigError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    except (NotDoneError, OSError) as error:
        if isinstance(error, BrokenPipeError):
            raise
        sys.stderr.write(f"{_PROGRAM} {args.action}: {error}\n")
        return 1


# -- what is there


def _describe(args: argparse.Namespace) -> int:
    rules = Client(args.url).rules(_names(args))
    if args.json:
        _print(json.dumps({"rules": [json.loads(_written(one)) for one in rules]}, indent=2))
    elif args.yaml:
        # A file has one rule for an entity.
        held = [one for one in rules if one.shadowed_by is None]
        _print(*as_yaml((one.entity, one.rule, one.source) for one in held))
        return _left_out(held)
    else:
        told = ((shown_entity(one.entity), shown_limits(one.rule), one.source, format_status(one.now)) for one in rules)
        _print(*(f"{entity}: {limits} ({source}){now}" for entity, limits, source, now in told))
    return 0


def _written(one: Rule) -> str:
    more: dict[str, object] = {} if one.now is None else {"now": status_as_json(one.now)}
    if one.shadowed_by is not None:
        more["shadowed_by"] = one.shadowed_by
    return written_rule(one.entity, one.rule, source=one.source, can_change=one.can_change, **more)


def _export(args: argparse.Namespace) -> int:
    rules = [one for one in Client(args.url).rules({}) if one.can_change]
    if args.json:
        _print(*as_json((one.entity, one.rule) for one in rules))
        return 0
    _print(*as_yaml((one.entity, one.rule, "") for one in rules))
    return _left_out(rules)


def _left_out(rules: Iterable[Rule]) -> int:
    """Tell of rules that YAML cannot say; return the exit status."""
    reasons = [(one.entity, not_in_yaml(one.entity, one.rule)) for one in rules]
    for entity, reason in reasons:
        if reason is not None:
            sys.stderr.write(f"{_PROGRAM}: left out: {shown_entity(entity)}: {reason}\n")
    return 1 if any(reason for _, reason in reasons) else 0


# -- changes


def _alter(args: argparse.Namespace) -> int:
    entity = _entity(args)
    limits, terms = _asked(args, entity)
    # What is not named stays, which the proxy sees to: others may change it meanwhile.
    changed_terms = {entity: read_terms_change(terms)} if terms else {}
    ops = tuple(Op(*limit) for limit in limits.items())
    return _change(_client(args), Changes((_of(entity, ops),), changed_terms, args.dry_run), args)


def _delete(args: argparse.Namespace) -> int:
    entity = _entity(args)
    ops = tuple(Op(key, None) for key in keys_of(entity))
    return _change(_client(args), Changes((_of(entity, ops),), {}, args.dry_run), args)


def _of(entity: Entity, ops: tuple[Op, ...]) -> Alteration:
    return Alteration(tuple(names_of(entity).items()), ops)


def _change(client: Client, changes: Changes, args: argparse.Namespace) -> int:
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
    wanted = read(data, file="<stdin>" if is_input else str(args.file))
    client = _client(args)
    there = client.rules({})
    gone: dict[Entity, StoredRule] = {}
    if args.replace:
        # What the proxy's file hides is in no export, and in a fleet holds where the file has no rule for it.
        gone = {one.entity: one.rule for one in there if one.can_change and one.entity not in wanted}
    old = {one.entity: one.rule for one in there if one.shadowed_by is None}
    some = (*differences(gone, dict.fromkeys(gone)), *differences(old, wanted))
    if not args.json:
        _print(*(line for one in some for line in lines(one)))
    not_done = _NotDone()
    for batch in _batches(some):
        answer = _sit_out(client, changes_of(batch, is_dry_run=args.dry_run))
        not_done = not_done.plus(_not_done(answer.results))
        if args.json:
            _print(answer.text.rstrip())
    if args.json and not some:
        _print(json.dumps({"dry_run": args.dry_run, "results": []}))
    return _conclude(len(some) - not_done.refused - not_done.may_hold, not_done, args)


def _batches(some: Iterable[Difference]) -> Iterator[list[Difference]]:
    """Yield what is to be asked for at once."""
    batch: list[Difference] = []
    size_bytes = 0
    for one in some:
        one_bytes = len(written_changes(changes_of([one], is_dry_run=False)))
        if batch and (len(batch) == _BATCH or size_bytes + one_bytes > _BATCH_BYTES):
            yield batch
            batch, size_bytes = [], 0
        batch.append(one)
        size_bytes += one_bytes
    if batch:
        yield batch


def _sit_out(client: Client, changes: Changes) -> Answer:
    """Ask for changes until there are not too many of them."""
    while True:
        answer = client.change(changes)
        if not answer.retry_after_s:
            return answer
        wait_s = answer.retry_after_s
        sys.stderr.write(f"{_PROGRAM} import: too many changes (store.changes_per_second); waiting for {wait_s} s\n")
        time.sleep(wait_s)


class _NotDone(NamedTuple):
    """How many entities were refused, and of how many nobody knows whether what was asked for holds."""

    refused: int = 0
    may_hold: int = 0

    def plus(self, other: "_NotDone") -> "_NotDone":
        return _NotDone(self.refused + other.refused, self.may_hold + other.may_hold)


def _not_done(results: Iterable[Result]) -> _NotDone:
    """Tell of what was refused or may hold; return how many."""
    errors = [one for one in results if one.error is not None]
    for one in errors:
        sys.stderr.write(f"{shown_entity(one.entity)}: {'may hold: ' if one.may_hold else ''}{one.error}\n")
    may_hold = sum(one.may_hold for one in errors)
    return _NotDone(len(errors) - may_hold, may_hold)


def _conclude(changed: int, not_done: _NotDone, args: argparse.Namespace) -> int:
    """Say what was done; return the exit status."""
    what = f"{changed} {'entity' if changed == 1 else 'entities'}"
    if not changed and not any(not_done):
        told = "nothing to change"
    elif args.dry_run:
        told = f"dry run: {what} would be changed"
    else:
        told = f"{what} changed"
    if not_done.refused:
        told += f", {not_done.refused} refused"
    if not_done.may_hold:
        told += f", {not_done.may_hold} may hold; run {_PROGRAM} describe"
    if not args.json:
        _print(told)
    return 1 if any(not_done) else 0


# -- what was said on the command line


def _client(args: argparse.Namespace) -> Client:
    path = args.token_file or os.environ.get(_TOKEN_FILE)
    if not path:
        raise _UsageError(f"give --token-file FILE (or ${_TOKEN_FILE}): quotas are changed with the proxy's token")
    try:
        return Client(args.url, token=read_token(path))
    except TokenFileError as error:
        raise _UsageError(f"--token-file: {error}") from error


def _names(args: argparse.Namespace) -> Mapping[str, EntityName]:
    given = ((kind, getattr(args, kind.replace("-", "_"))) for kind in ENTITY_TYPES)
    names = {kind: name for kind, name in given if name is not None}
    for kind, name in names.items():
        if name == "":
            raise _UsageError(f"--{kind}: must not be empty; write a name, or --default-{kind}")
    if IP in names and len(names) > 1:
        raise _UsageError("--ip: an address has quotas of its own, without a user or a client-id")
    return names


def _entity(args: argparse.Namespace) -> Entity:
    names = _names(args)
    if not names:
        raise _UsageError("whose? give --user, --client-id or both, --ip, or one of --default-user and so on")
    return entity_of({kind: name if isinstance(name, str) else None for kind, name in names.items()})


def _asked(args: argparse.Namespace, entity: Entity) -> tuple[dict[str, float | None], dict[str, object]]:
    """Return the limits and the terms that are to be set, None for those to be removed."""
    limits: dict[str, float | None] = {}
    terms: dict[str, object] = {}
    known = keys_of(entity)
    settings: list[tuple[str, str | None]] = [*map(_pair, args.set), *((key, None) for key in args.unset)]
    if not settings:
        raise _UsageError("what? give --set KEY=VALUE or --unset KEY")
    for key, text in settings:
        if key in limits or key in terms:
            raise _UsageError(f"{key} is given twice")
        if key in known:
            limits[key] = None if text is None else _limit(key, text)
        elif key in TERMS:
            terms[key] = None if text is None else _term(key, text)
        else:
            told = f"{key!r} is no key of {shown_entity(entity)} that can be set here"
            raise _UsageError(f"{told}; there are {', '.join((*known, *TERMS))}")
    return limits, terms


def _pair(text: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if not separator:
        raise _UsageError(f"--set {text}: must be KEY=VALUE, such as producer_byte_rate=10MiB")
    return key.strip(), value.strip()


def _limit(key: str, text: str) -> float:
    try:
        return parse_limit(key, text)
    except UnitError as error:
        raise _UsageError(f"--set {key}: {error}") from error


def _term(key: str, text: str) -> object:
    document = parse(text, file=f"--set {key}")
    if document.faults:
        raise InvalidConfigError(document.faults)
    value = _plain(document.data)
    try:
        read_terms({key: value})
    except TermsError as error:
        raise _UsageError(f"--set {error}") from error
    return value


def _plain(value: object) -> object:
    """Return what YAML says, in which it takes instants for dates of its own."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return value.text if isinstance(value, Odd) else value


def _print(*some: str) -> None:
    sys.stdout.writelines(f"{line}\n" for line in some)
