"""Declares the command-line arguments of ``kafka-quota-proxy quotas``, and converts the parsed arguments to values."""

import argparse
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from kafka_quota_proxy.config.addresses import not_an_ip, usual_ip
from kafka_quota_proxy.config.document import Odd, parse
from kafka_quota_proxy.config.errors import ConfigError, TermsError, TokenFileError, UnitError
from kafka_quota_proxy.config.model import DEFAULT, EntityName
from kafka_quota_proxy.config.quota_kinds import parse_limit
from kafka_quota_proxy.config.terms import TERMS, read_terms
from kafka_quota_proxy.config.token_file import read_token
from kafka_quota_proxy.proxy.cli.admin_client import DEFAULT_URL, AdminClient
from kafka_quota_proxy.proxy.rules.model import (
    CLIENT_ID,
    ENTITY_TYPES,
    IP,
    USER,
    Entity,
    entity_of,
    keys_of,
)
from kafka_quota_proxy.proxy.rules.text import shown_entity

_TOKEN_FILE: Final = "KAFKA_QUOTA_PROXY_TOKEN_FILE"  # noqa: S105 - the name of a variable
_EXAMPLES: Final = {
    "describe": "example: kafka-quota-proxy quotas describe --user alice --json",
    "alter": (
        "examples: kafka-quota-proxy quotas alter --user alice --default-client-id --set producer_byte_rate=10MiB\n"
        "          kafka-quota-proxy quotas alter --client-id etl --unset consumer_byte_rate --dry-run\n"
        "          kafka-quota-proxy quotas alter --client-id etl --set expires=2030-01-01T00:00:00Z"
    ),
    "delete": "example: kafka-quota-proxy quotas delete --ip 10.0.0.7 --token-file quotas.token",
    "export": "example: kafka-quota-proxy quotas export > quotas.yaml",
    "import": "example: kafka-quota-proxy quotas import quotas.yaml --dry-run",
}


class UsageError(Exception):
    """The user's arguments are invalid. The message, for the user, says what is wrong or what to write instead."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``quotas``. Once parsed, ``args.action`` names the action, such as "describe"."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)

    def action(name: str, summary: str) -> argparse.ArgumentParser:
        subparser = actions.add_parser(
            name,
            help=summary,
            description=f"{summary.capitalize()}.",
            epilog=_EXAMPLES[name],
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        subparser.add_argument(
            "--url", default=DEFAULT_URL, help=f"the admin port of the proxy (default {DEFAULT_URL})"
        )
        return subparser

    describe = action("describe", "show the quotas of a proxy, and where each is set")
    _add_entity(describe)
    describe.add_argument("--json", action="store_true", help="print JSON, with bytes and milliseconds")
    alter = action("alter", "set or remove limits of one entity; they apply from the next request on")
    _add_entity(alter)
    alter.add_argument(
        "--set",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="set a limit, or one of " + ", ".join(TERMS) + ", written as in a configuration file; may be repeated",
    )
    alter.add_argument("--unset", metavar="KEY", action="append", default=[], help="remove this key; may be repeated")
    _add_change(alter)
    delete = action("delete", "remove all quotas of one entity")
    _add_entity(delete)
    _add_change(delete)
    action("export", "print the rules that were set through the proxy, as a file for import")
    import_ = action("import", "set the rules of a file: each entity in it gets these limits and no others")
    import_.add_argument("file", metavar="FILE", type=Path, help="a file that export printed; - reads standard input")
    import_.add_argument(
        "--replace",
        action="store_true",
        help="also remove the rules of all other entities, except those that the proxy's file overrides",
    )
    _add_change(import_)


def _add_entity(parser: argparse.ArgumentParser) -> None:
    for kind, default, example in (
        (USER, "--default-user", "a user, without User:"),
        (CLIENT_ID, "--default-client-id", "a client-id"),
        (IP, "--default-ip", "an IP address"),
    ):
        one = parser.add_mutually_exclusive_group()
        one.add_argument(f"--{kind}", metavar=kind.upper(), help=example)
        one.add_argument(default, dest=kind.replace("-", "_"), action="store_const", const=DEFAULT, help="<default>")


def _add_change(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dry-run", action="store_true", help="change nothing; show what would change or be refused")
    parser.add_argument("--json", action="store_true", help="print the proxy's response, one JSON object per line")
    parser.add_argument(
        "--token-file",
        metavar="FILE",
        type=Path,
        help=f"a file whose first line is the token of admin.quotas_token_file (default: ${_TOKEN_FILE})",
    )


def client_of(args: argparse.Namespace) -> AdminClient:
    """Return a client that may change quotas through the proxy's admin port.

    The client authenticates with a token, which it reads from the file named by ``--token-file`` or by the environment
    variable KAFKA_QUOTA_PROXY_TOKEN_FILE. Raises UsageError if neither is given, or if the file cannot be used.
    """
    path = args.token_file or os.environ.get(_TOKEN_FILE)
    if not path:
        raise UsageError(f"give --token-file FILE (or ${_TOKEN_FILE}): a change needs the proxy's token")
    try:
        return AdminClient(args.url, token=read_token(path))
    except TokenFileError as error:
        raise UsageError(f"--token-file: {error}") from error


def names_in(args: argparse.Namespace) -> Mapping[str, EntityName]:
    """Return the names that the user gave, keyed by entity type (user, client-id, ip).

    Raises UsageError if a name is empty, if an IP address is none, or if it is given together with a user or client-id.
    """
    given = ((kind, getattr(args, kind.replace("-", "_"))) for kind in ENTITY_TYPES)
    names = {kind: name for kind, name in given if name is not None}
    for kind, name in names.items():
        if name == "":
            raise UsageError(f"--{kind}: must not be empty; write a name, or --default-{kind}")
    if IP in names and len(names) > 1:
        raise UsageError("--ip: the quotas of an address have no user or client-id")
    ip = names.get(IP)
    if isinstance(ip, str) and usual_ip(ip) is None:
        raise UsageError(f"--ip: {not_an_ip(ip)}")
    return names


def entity_in(args: argparse.Namespace) -> Entity:
    """Return the entity whose quotas to change, as the options name it. Raises UsageError if they name none."""
    names = names_in(args)
    if not names:
        raise UsageError("no entity: give --user, --client-id or both, --ip, or a --default-... option")
    return entity_of({kind: name if isinstance(name, str) else None for kind, name in names.items()})


def settings_in(args: argparse.Namespace, entity: Entity) -> tuple[dict[str, float | None], dict[str, object]]:
    """Return the quota changes that ``--set`` and ``--unset`` ask for.

    The first mapping contains limits, the second terms (expiry, schedule …), both by key. A value of None means that
    the key is to be removed.
    """
    limits: dict[str, float | None] = {}
    terms: dict[str, object] = {}
    known = keys_of(entity)
    settings: list[tuple[str, str | None]] = [*map(_pair, args.set), *((key, None) for key in args.unset)]
    if not settings:
        raise UsageError("nothing to change: give --set KEY=VALUE or --unset KEY")
    for key, text in settings:
        if key in limits or key in terms:
            raise UsageError(f"{key} is given twice")
        if key in known:
            limits[key] = None if text is None else _limit(key, text)
        elif key in TERMS:
            terms[key] = None if text is None else _term(key, text)
        else:
            known_keys = ", ".join((*known, *TERMS))
            raise UsageError(f"{key!r} is not a key of {shown_entity(entity)}; the keys are {known_keys}")
    return limits, terms


def _pair(text: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if not separator:
        raise UsageError(f"--set {text}: must be KEY=VALUE, such as producer_byte_rate=10MiB")
    return key.strip(), value.strip()


def _limit(key: str, text: str) -> float:
    try:
        return parse_limit(key, text)
    except UnitError as error:
        raise UsageError(f"--set {key}: {error}") from error


def _term(key: str, text: str) -> object:
    document = parse(text, file=f"--set {key}")
    if document.faults:
        raise ConfigError(document.faults)
    value = _plain(document.data)
    try:
        read_terms({key: value})
    except TermsError as error:
        raise UsageError(f"--set {error}") from error
    return value


def _plain(value: object) -> object:
    """Replace each date or time in a parsed YAML value with the text that the user typed for it."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return value.text if isinstance(value, Odd) else value
