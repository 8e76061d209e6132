"""What ``check`` says of the directory of a store: whether there is one, whether it may be used, and what is in it.

It is looked at as it is, and nothing in it is touched; a proxy may have it meanwhile.
"""

import time
from pathlib import Path
from typing import NamedTuple

from kafka_quota_proxy.config.model import ProxyConfig, Store
from kafka_quota_proxy.proxy.background.disk_access import directory_fault
from kafka_quota_proxy.proxy.client_quotas.rules.alter import Change
from kafka_quota_proxy.proxy.client_quotas.rules.effective_rules import EffectiveRules
from kafka_quota_proxy.proxy.client_quotas.storage.journal import THEN, ForeignStoreError
from kafka_quota_proxy.proxy.client_quotas.storage.store_directory import StoreDirectory


class StoreReport(NamedTuple):
    """What there is to be said.

    Attributes:
        quotas: How many entities have quotas there; None: nobody can tell.
        shadowed: FILE:LINE and which of them the file has, too, so that the file's hold.
        warnings: What is wrong, and what to do.
        errors: Why a proxy does not start with it, likewise.
        is_there: Whether there is such a directory.
    """

    quotas: int | None
    shadowed: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    is_there: bool = True


def report_on(store: Store, path: Path, config: ProxyConfig) -> StoreReport:
    """Return what is to be said of a store that has its files in ``path``."""
    fault = directory_fault(path)
    errors = () if fault is None else (fault,)
    try:
        if not path.is_dir():
            is_there = path.exists()
            return StoreReport(None if is_there else 0, errors=errors, is_there=is_there)
        restored = StoreDirectory(path).look(is_lenient=store.topic is not None)
    except ForeignStoreError as error:
        if store.topic:
            return StoreReport(None, warnings=(f"{path}: {error}; it is set aside at the start",), errors=errors)
        return StoreReport(None, errors=(*errors, f"{path}: {error}; {THEN}"))
    except OSError as error:
        return StoreReport(None, errors=errors or (f"{path} cannot be used: {error.strerror or error}",))
    warnings = [f"{path}/{fault}; what follows there is set aside at the start" for fault in restored.faults]
    if restored.left_out is not None:
        warnings.append(f"{path}/{restored.left_out}")
    now_ms = time.time_ns() // 1_000_000
    both = EffectiveRules(config, name=str(path), now_ms=now_ms)
    both.change((Change(*one) for one in restored.rules.items()), now_ms=now_ms)
    return StoreReport(len(restored.rules), both.doubles, tuple(warnings), errors)
