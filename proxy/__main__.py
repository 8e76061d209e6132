"""Runs the command line ``kafka-quota-proxy COMMAND …``.

Results go to stdout, errors to stderr. The exit status is 0 if the command succeeded, 1 if it failed, 2 if the
arguments or the configuration file are invalid, and 141 after a broken pipe.

The module of a command is imported only when that command runs, so that ``check`` starts fast and needs no optional
packages.
"""

import argparse
import importlib
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Final, NamedTuple

from kafka_quota_proxy.proxy.runtime.build import description, install_line, is_compiled

_PROGRAM: Final = "kafka-quota-proxy"
# A shell gives this exit status, 128 + 13, to a program that SIGPIPE has ended. No command returns it itself.
_BROKEN_PIPE: Final = 141
_HOW_TO_COMPILE: Final = " (KQP_COMPILE=1 and a C compiler at its installation compile it)"
# The commands that are folders of several modules.
_IN_FOLDERS: Final = ("demo", "quotas")
_COMPLETION: Final = "completion"


class _Command(NamedTuple):
    summary: str
    example: str  # what --help shows at its end


_FIRST_STEPS: Final = """\
example: kafka-quota-proxy demo                         watch the proxy throttle two clients; needs no Kafka
         kafka-quota-proxy init                         write kafka-quota-proxy.yaml
         kafka-quota-proxy run kafka-quota-proxy.yaml   and give clients bootstrap.servers=127.0.0.1:9192

COMMAND --help explains each command."""

_COMMANDS: Final = {
    "run": _Command(
        "run the proxy",
        "example: kafka-quota-proxy run config.yaml\n\n"
        "Prints one line for each listener when it is ready. Reads the file again when it changes and on SIGHUP;\n"
        "ends on SIGTERM and SIGINT.",
    ),
    "demo": _Command(
        "show a producer and a consumer being held at their quotas, or your own application (--serve)",
        "example: kafka-quota-proxy demo --produce-rate 10MiB --fetch-rate 5MiB --seconds 15",
    ),
    "init": _Command(
        "write a starter configuration file",
        "example: kafka-quota-proxy init\n"
        "         kafka-quota-proxy init proxy.yaml --bootstrap-servers broker1:9092,broker2:9092\n"
        "         kafka-quota-proxy init - | less\n\n"
        "With it the proxy listens on 127.0.0.1:9192 and limits the client.id my-app. Nothing changes in the cluster.",
    ),
    "check": _Command(
        "show every fault of a configuration file",
        "example: kafka-quota-proxy check config.yaml\n"
        "         kafka-quota-proxy check --strict --json config.yaml\n"
        "         ssh broker1 cat /etc/kafka-quota-proxy/proxy.yaml | kafka-quota-proxy check -\n\n"
        "Each finding is one line: FILE:LINE: KEY: what is wrong and what would be right. Warnings do not fail,\n"
        'unless with --strict. With --json: {"file", "valid", "findings": [{"severity", "file", "line", "key",\n'
        '"message"}]}, severity error or warning. CONFIG - is standard input; relative paths in it start from the\n'
        "working directory.\n\n"
        "Exit status: 0 the file can be used; 2 it cannot.",
    ),
    "explain": _Command(
        "show which quota applies to a client, and why",
        "example: kafka-quota-proxy explain config.yaml --user alice --client-id etl\n\n"
        "With --json: an object for each kind of quota, or null if nothing limits it.",
    ),
    "top": _Command(
        "show the clients of a running proxy: who is throttled now, by which rule, and since when",
        "example: kafka-quota-proxy top --url http://127.0.0.1:9308 --sort utilisation\n"
        "         kafka-quota-proxy top --json | jq '.clients[] | select(.throttled) | .client_id'\n\n"
        "Each line is a quota in use: the rate, the limit and how much of it is used, for how long its clients have\n"
        "been throttled by now, which part of the last minute that was, and the file and line of the rule. Clients\n"
        "that share a quota share a line.\n\n"
        "A terminal shows the table again each second, until Ctrl-C. Elsewhere it is printed once.",
    ),
    "quotas": _Command(
        "show and change the quotas of a running proxy: describe, alter, delete, export, import",
        "example: kafka-quota-proxy quotas describe --url http://127.0.0.1:9308\n"
        "         kafka-quota-proxy quotas alter --user alice --set producer_byte_rate=10MiB --dry-run\n\n"
        "Changes need the token of admin.quotas_token_file, and are kept in the proxy's store: use --token-file FILE.\n"
        "ACTION --help explains each action.",
    ),
    "rebalance": _Command(
        "show how far a reassignment is, when it ends, and which throttle ends it by a time",
        "example: kafka-quota-proxy rebalance config.yaml --by 06:00\n\n"
        "For each topic and broker that gets replicas of it: bytes left, the rate, the time left, the end. Where more\n"
        "comes in than is copied it says: never ends.\n"
        "Asks the brokers of replication.admin_client, else those behind the listeners, and changes nothing.\n"
        "Rates and sizes are in powers of 1,000 (MB), as kafka-reassign-partitions.sh --throttle takes them.\n\n"
        "Exit status: 0 done, or it will be; 1 it never ends, waits for a broker, or none answers; 2 wrong usage.",
    ),
    "healthcheck": _Command(
        "ask a running proxy whether it is alive, as in a Dockerfile",
        "example: kafka-quota-proxy healthcheck config.yaml\n"
        "         kafka-quota-proxy healthcheck --ready config.yaml\n\n"
        "Asks the address of admin.bind. If the file has no section admin, connects to the first listener.\n\n"
        "Exit status: 0 healthy; 1 not healthy; 2 wrong usage.",
    ),
    _COMPLETION: _Command(
        "print a script that lets bash, zsh or fish complete commands, options and files",
        "example: kafka-quota-proxy completion bash > ~/.local/share/bash-completion/completions/kafka-quota-proxy\n"
        '         kafka-quota-proxy completion zsh > "${fpath[1]}/_kafka-quota-proxy"\n'
        "         kafka-quota-proxy completion fish > ~/.config/fish/completions/kafka-quota-proxy.fish\n\n"
        "Then open a new shell. The first line needs the package bash-completion; without it, put this line into\n"
        "~/.bashrc: source <(kafka-quota-proxy completion bash)",
    ),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status. ``arguments`` defaults to those of the process."""
    try:
        try:
            return _run(list(sys.argv[1:] if arguments is None else arguments))
        finally:
            # Flushed here and not at exit, where a broken pipe could not be caught.
            sys.stdout.flush()
    except BrokenPipeError:  # "kafka-quota-proxy explain … | head"
        # The interpreter flushes both streams again at its end, and would report the broken pipe. A stream that is None
        # is not flushed. With "2>&1 | head" both streams are broken.
        for name in ("stdout", "stderr"):
            try:
                getattr(sys, name).flush()
            except BrokenPipeError:
                setattr(sys, name, None)
        return _BROKEN_PIPE


def _run(given: Sequence[str]) -> int:
    command = next((argument for argument in given if not argument.startswith("-")), None)
    try:
        args = _parser(command).parse_args(given)
        status: int = _module(args.command).execute(args)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("kafka_quota_proxy"):
            raise
        sys.stderr.write(f"{_PROGRAM} {command}: {error.name} is not installed; {_install_hint(command)}\n")
        return 1
    return status


def _parser(chosen: str | None) -> argparse.ArgumentParser:
    """Return the parser for the whole command line.

    Only the command ``chosen`` gets its own arguments. The other commands get only their help texts, so that their
    modules need not be imported. ``completion`` needs the arguments of all commands.
    """
    parser = argparse.ArgumentParser(
        prog=_PROGRAM,
        description="Kafka quotas, enforced in front of any broker.",
        epilog=_FIRST_STEPS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=_version())
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, command in _COMMANDS.items():
        subparser = commands.add_parser(
            name,
            help=command.summary,
            description=f"{command.summary.capitalize()}.",
            epilog=command.example,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if name == chosen or chosen == _COMPLETION:
            _module(name).add_arguments(subparser)
    parser.set_defaults(program=parser)
    return parser


def _version() -> str:
    return f"{_PROGRAM} {description()}{'' if is_compiled() else _HOW_TO_COMPILE}"


def _module(command: str) -> ModuleType:
    """Import the module of a command: ``cli/NAME.py``, or ``cli/NAME/command.py`` if the command has a folder."""
    module = f"kafka_quota_proxy.proxy.cli.{command}"
    return importlib.import_module(f"{module}.command" if command in _IN_FOLDERS else module)


def _install_hint(command: str | None) -> str:
    return f"install it with: {install_line('demo' if command == 'demo' else '')}"


if __name__ == "__main__":
    sys.exit(main())
