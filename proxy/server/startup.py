"""What the start waits for: the stored quotas, and the first rules of a topic or of the brokers."""

import asyncio
import logging
from typing import Final

from kafka_quota_proxy.proxy.client_quotas.manager import QuotaManager
from kafka_quota_proxy.proxy.client_quotas.sources.quota_source import QuotaSource

log = logging.getLogger(__name__)

# How long clients wait for the rules of a topic, or of the brokers, before they are served without.
_FIRST_RULES_S: Final = 15.0


async def read_store(manager: QuotaManager, stopping: asyncio.Event, tasks: asyncio.TaskGroup) -> None:
    """Wait until the stored quotas are read, or the server stops: a topic may be unavailable for a while.

    Raises:
        StartError: The store cannot be used.
    """
    # Not a task of the group: its failure is raised here.
    reading = asyncio.ensure_future(manager.read())
    stopped = tasks.create_task(stopping.wait())
    await asyncio.wait([reading, stopped], return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    if reading.done():
        reading.result()
    else:
        reading.cancel()


async def await_rules(source: QuotaSource, stopping: asyncio.Event, tasks: asyncio.TaskGroup) -> None:
    """Wait for the first rules of a source, for some seconds, or until the server stops."""
    waits = [tasks.create_task(event.wait()) for event in (source.may_serve, stopping)]
    await asyncio.wait(waits, timeout=_FIRST_RULES_S, return_when=asyncio.FIRST_COMPLETED)
    for wait in waits:
        wait.cancel()
    if not source.has_read.is_set() and not stopping.is_set():
        within = "" if source.may_serve.is_set() else f" within {_FIRST_RULES_S:.0f} s"
        log.warning("quotas_from %s: not read to its end%s: clients are served with what is known", source.name, within)
