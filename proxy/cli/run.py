"""The ``kafka-quota-proxy run`` command, which runs the proxy itself."""

import argparse
import asyncio
import contextlib
import ctypes
import gc
import logging
import resource
import signal
import sys
from functools import partial
from pathlib import Path
from typing import Final

from kafka_quota_proxy.config.document import located
from kafka_quota_proxy.config.errors import ConfigError, StartError, TlsFileError
from kafka_quota_proxy.config.load import Loaded, load
from kafka_quota_proxy.proxy.admin.http_server import AdminServer
from kafka_quota_proxy.proxy.cli.logging_setup import announce, configure_logging
from kafka_quota_proxy.proxy.runtime.build import description
from kafka_quota_proxy.proxy.server.config_reloader import Reloader, log_faults
from kafka_quota_proxy.proxy.server.server import Server
from kafka_quota_proxy.proxy.server.serving_loop import ServingLoop

log = logging.getLogger(__name__)

# malloc.h: M_TRIM_THRESHOLD, M_MMAP_THRESHOLD and M_TOP_PAD.
_MALLOC_PARAMETERS = ((-1, 64 * 1024 * 1024), (-3, 32 * 1024 * 1024), (-2, 4 * 1024 * 1024))
# OPEN_MAX in macOS's sys/syslimits.h: the most open files that a process there may ask for, whatever its hard limit is.
_MACOS_OPEN_MAX = 10_240
# Requests create many small objects and no reference cycles. With the defaults the garbage collector would run 50 times
# a second. A collection of 20,000 new objects holds all threads for some 20 ms.
GC_THRESHOLDS: Final = (20_000, 50, 50)
# The interpreter's default is 5 ms. A scrape of the metrics runs in its own thread, and could block the event loop for
# that long, again and again.
_SWITCH_INTERVAL_S = 0.0005


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``run``."""
    parser.add_argument("config", metavar="CONFIG", type=Path, help="the YAML file; reloaded when it changes")


def execute(args: argparse.Namespace) -> int:
    """Run the proxy until SIGTERM or SIGINT, then let pending requests finish, and return the exit status.

    A second signal closes the remaining connections at once.
    """
    try:
        loaded = load(args.config)
    except ConfigError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    configure_logging(loaded.config.log)
    log.info("kafka-quota-proxy %s", description())
    log_faults(loaded.warnings)
    _raise_file_limit()
    _keep_freed_memory()
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    gc.set_threshold(*GC_THRESHOLDS)
    status = 0
    try:
        with asyncio.Runner(loop_factory=ServingLoop) as runner:
            runner.run(_serve(args.config, loaded))
    except* StartError as errors:
        _print_errors(errors, args.config)
        status = 1
    except* (TlsFileError, OSError) as errors:  # a TLS file may have changed since its check
        sys.stderr.writelines(f"kafka-quota-proxy: {error}\n" for error in errors.exceptions)
        status = 1
    return status


def _print_errors(errors: BaseExceptionGroup[StartError], file: Path) -> None:
    """Print each error with the file and line of the key that it is about, in the format of the ``check`` command."""
    for error in errors.exceptions:
        if isinstance(error, StartError):
            sys.stderr.write(f"{located(file, error.location, str(error))}\n")
        else:
            _print_errors(error, file)


async def _serve(path: Path, loaded: Loaded) -> None:
    loop = asyncio.get_running_loop()
    server = Server(loaded.config, announce=partial(announce, loaded.config.log))
    reloader = Reloader(path, loaded, on_loaded=lambda new: server.reload(new.config))
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, server.stop)
    loop.add_signal_handler(signal.SIGHUP, reloader.request)
    with contextlib.ExitStack() as stack:
        if loaded.config.admin is not None:
            stack.enter_context(AdminServer(loaded.config.admin, server, reloader))
        await server.run(companion=reloader.watch)


def _raise_file_limit() -> None:
    """Raise the process's soft limit on open files to its hard limit, or as far as the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for limit in (hard, min(hard, _MACOS_OPEN_MAX)):
        if soft < limit:
            with contextlib.suppress(OSError, ValueError):
                resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
                return


def _keep_freed_memory() -> None:
    """Make glibc keep freed memory instead of returning it to the kernel, because requesting it again costs CPU time.

    With frames of 1 MiB this saves a quarter of the CPU time.
    """
    with contextlib.suppress(AttributeError, OSError):
        mallopt = ctypes.CDLL(None).mallopt
        for parameter, value in _MALLOC_PARAMETERS:
            mallopt(parameter, value)
