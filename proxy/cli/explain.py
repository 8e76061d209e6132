"""``kafka-quota-proxy explain`` shows which quotas apply to a client, with their precedence, and why others do not.

The command reads the configuration file and its store, and shows which rules apply now, or at the time given with
``--at``. With ``--url`` it also asks a running proxy for the client's priority in its fair call queues.
"""

import argparse
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from time import time_ns
from typing import Any, Final

from kafka_quota_proxy.config.addresses import parse_ip
from kafka_quota_proxy.config.errors import ConfigError, TermsError, UnitError
from kafka_quota_proxy.config.load import Loaded, load
from kafka_quota_proxy.config.model import Store
from kafka_quota_proxy.config.principals import ANONYMOUS
from kafka_quota_proxy.config.quota_kinds import CONNECTION_CREATION_RATE
from kafka_quota_proxy.config.term_values import parse_instant_ms
from kafka_quota_proxy.proxy.cli.admin_client import AdminClient, AdminPortError, Queues
from kafka_quota_proxy.proxy.cli.explanation import output as text
from kafka_quota_proxy.proxy.cli.explanation.output import as_json
from kafka_quota_proxy.proxy.cli.explanation.resolve import Rules, explain
from kafka_quota_proxy.proxy.rules.effective import EffectiveRules
from kafka_quota_proxy.proxy.rules.model import Change
from kafka_quota_proxy.proxy.rules.source import UnusableSourceError
from kafka_quota_proxy.proxy.rules.sqlite.rule_database import read_store

_PROGRAM: Final = "kafka-quota-proxy explain"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``explain``."""
    parser.add_argument("config", metavar="CONFIG", type=Path, help="the YAML file")
    parser.add_argument("--user", metavar="U", default=ANONYMOUS, help=f"the user, without User: (default {ANONYMOUS})")
    parser.add_argument("--client-id", metavar="C", default="", help="the client-id (default: the client sends none)")
    parser.add_argument("--ip", metavar="I", help=f"the client's address: explain its {CONNECTION_CREATION_RATE}, too")
    parser.add_argument(
        "--url",
        metavar="URL",
        help="the admin port of a running proxy, such as http://127.0.0.1:9308: show the client's current priority, "
        "and why (fair_call_queue; for a client that does not log in give --ip, too)",
    )
    parser.add_argument(
        "--at",
        metavar="TIME",
        help="the time, such as 2030-01-31T00:00:00Z: rules may expire, have a schedule or a ramp (default: now)",
    )
    parser.add_argument("--json", action="store_true", help="print the same as JSON")


def execute(args: argparse.Namespace) -> int:
    """Print the explanation of a client's quotas, and return the exit status."""
    if not args.user:
        return _fail(f"a user has a name; one that did not authenticate is {ANONYMOUS}", 2)
    if args.url is not None and args.user == ANONYMOUS and args.ip is None:
        return _fail(
            "--url: in a queue, a client without a login is known by its client-id and address; give --ip, or --user", 2
        )
    queues = None
    try:
        ip = None if args.ip is None else parse_ip(args.ip)
        now_ms = time_ns() // 1_000_000 if args.at is None else parse_instant_ms(args.at)
        rules = rules_at(load(args.config), now_ms=now_ms)
        if args.url is not None:
            queues = AdminClient(args.url).priority(user=args.user, client_id=args.client_id, ip=ip or "")
    except UnitError as error:
        return _fail(f"--ip: {error}", 2)
    except TermsError as error:
        return _fail(f"--at: {error}", 2)
    except ConfigError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    except (OSError, UnusableSourceError) as error:
        return _fail(f"the store cannot be read: {error}", 1)
    except AdminPortError as error:
        return _fail(str(error), 1)
    config = rules.config
    found = explain(rules, user=args.user, client_id=args.client_id, ip=ip)
    known_last = config.store.path if config.store is not None and _has_store_files(config.store) else None
    if args.json:
        sys.stdout.write(as_json(found, config, known_last=known_last, queues=queues))
        return 0
    names = [listener.name for listener in config.listeners]
    lines = (
        *text.lines(found, max_throttle_time_ms=config.max_throttle_time_ms),
        *text.rule_hints(config, known_last=known_last),
        *(text.queue_hints(config) if queues is None else _priority_lines(queues, names)),
    )
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    return 0


def _fail(message: str, status: int) -> int:
    sys.stderr.write(f"{_PROGRAM}: {message}\n")
    return status


def rules_at(loaded: Loaded, *, now_ms: int) -> Rules:
    """Return the rules of the configuration file and its store that apply at the Unix time ``now_ms``.

    Raises:
        OSError: The store cannot be read.
        UnusableSourceError: The store is damaged or has an unknown format.
    """
    store = loaded.config.store
    effective = EffectiveRules(loaded.config, name=str(store or ""), now_ms=now_ms)
    if store is not None and store.path is not None and _has_store_files(store):
        stored = read_store(Path(store.path), is_copy=store.topic is not None)
        for warning in filter(None, (stored.damage, stored.left_out)):
            sys.stderr.write(f"{_PROGRAM}: {warning}\n")
        effective.change((Change(entity, rule) for entity, rule in stored.rules.items()), now_ms=now_ms)
    config = replace(loaded.config, quotas=effective.quotas, ip_quotas=effective.ip_quotas)
    return Rules(config=config, kafka_sources=loaded.kafka_sources, timed=effective.schedule.rules(), now_ms=now_ms)


def _has_store_files(store: Store) -> bool:
    return store.path is not None and Path(store.path).exists()


def _priority_lines(queues: Queues, listeners: Iterable[str]) -> Iterator[str]:
    """Yield lines that show a client's priority at each of ``listeners``, or that a listener has no fair call queue."""
    for queue in queues:
        for user in queue["users"]:
            level = f"priority level {user['level']}, of 0 (served first) to {queue['levels'] - 1}"
            yield ""
            yield f"fair_call_queue at listener {queue['listener']}: {level}"
            yield f"  why          {user['why']}"
            yield f"  identity     {user['identity']}"
            for broker in queue["brokers"]:
                yield from _broker_lines(broker, user["level"], queue["utilisation_floor"])
    queued = {queue["listener"] for queue in queues}
    for name in listeners:
        if name not in queued:
            yield ""
            yield f"fair_call_queue at listener {name}: none"


def _broker_lines(broker: Mapping[str, Any], level: int, floor: float | None) -> Iterator[str]:
    in_use, slots, waiting = broker["in_flight"], broker["max_in_flight"], sum(broker["queue_sizes"])
    yield f"  broker       {broker['upstream']}: {in_use} of {slots} slots in use, {waiting} requests wait"
    if level > 0 and floor is not None and in_use < floor * slots:
        yield f"               below {floor:.0%} of its slots in use, every user is level 0, as now"
