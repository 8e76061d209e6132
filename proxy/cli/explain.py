"""``kafka-quota-proxy explain`` shows which quotas apply to a client, with their precedence, and why others do not.

The command reads the configuration file and its store, and shows which rules apply now, or at the time given with
``--at``.
"""

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from time import time_ns
from typing import Final

from kafka_quota_proxy.config.addresses import parse_ip
from kafka_quota_proxy.config.errors import ConfigError, TermsError, UnitError
from kafka_quota_proxy.config.load import Loaded, load
from kafka_quota_proxy.config.principals import ANONYMOUS
from kafka_quota_proxy.config.quota_kinds import CONNECTION_CREATION_RATE
from kafka_quota_proxy.config.term_values import parse_instant_ms
from kafka_quota_proxy.proxy.cli.explanation.output import lines, rule_hints
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
        "--at",
        metavar="TIME",
        help="the time, such as 2030-01-31T00:00:00Z: rules may expire, have a schedule or a ramp (default: now)",
    )
    parser.add_argument("--json", action="store_true", help="print the same as JSON")


def execute(args: argparse.Namespace) -> int:
    """Print the explanation of a client's quotas, and return the exit status."""
    if not args.user:
        return _fail(f"a user has a name; one that did not authenticate is {ANONYMOUS}", 2)
    try:
        ip = None if args.ip is None else parse_ip(args.ip)
        now_ms = time_ns() // 1_000_000 if args.at is None else parse_instant_ms(args.at)
        rules = rules_at(load(args.config), now_ms=now_ms)
    except UnitError as error:
        return _fail(f"--ip: {error}", 2)
    except TermsError as error:
        return _fail(f"--at: {error}", 2)
    except ConfigError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    except (OSError, UnusableSourceError) as error:
        return _fail(f"the store cannot be read: {error}", 1)
    config = rules.config
    found = explain(rules, user=args.user, client_id=args.client_id, ip=ip)
    if args.json:
        fields: dict[str, object] = {**found.kinds, CONNECTION_CREATION_RATE: found.of_ip}
        if config.quotas_from is not None:
            fields["quotas_from"] = str(config.quotas_from)
        if config.store is not None and config.store.topic is not None:
            fields["store"] = {"topic": str(config.store.topic)}
        sys.stdout.write(f"{json.dumps(fields, indent=2)}\n")
        return 0
    shown = lines(found, user=args.user, client_id=args.client_id, ip=ip, bound_ms=config.max_throttle_time_ms)
    sys.stdout.writelines(f"{line}\n" for line in (*shown, *rule_hints(config)))
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
    if store is not None and store.directory is not None:
        stored = read_store(Path(store.directory))
        effective.change((Change(entity, rule) for entity, rule in stored.items()), now_ms=now_ms)
    config = replace(loaded.config, quotas=effective.quotas, ip_quotas=effective.ip_quotas)
    return Rules(
        config=config,
        kafka_sources=loaded.kafka_sources,
        timed={entity: timed.rule for entity, timed in effective.schedule.timed.items()},
        now_ms=now_ms,
    )
