"""What ``check`` says of the directory of a store: whether there is one, whether it may be used, and what is in it.

It is looked at as it is, and nothing in it is touched; a proxy may have it meanwhile. What is said of permissions is
true of who asks, and of another user may not be.
"""

import os
import time
from pathlib import Path
from typing import Final, NamedTuple

from config.model import ProxyConfig, Store
from proxy.quota_store.alter import Change
from proxy.quota_store.directory import StoreDirectory
from proxy.quota_store.in_force import InForce
from proxy.quota_store.journal import ForeignStoreError

_GIVE_IT: Final = "give it to the user who runs the proxy"


class StoreReport(NamedTuple):
    """What there is to be said.

    Attributes:
        quotas: How many entities have quotas there; None: nobody can tell.
        shadowed: FILE:LINE and which of them the file has, too, so that the file's hold.
        warnings: What is wrong, and what to do.
        is_there: Whether there is such a directory.
    """

    quotas: int | None
    shadowed: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    is_there: bool = True


def report_on(store: Store, path: Path, config: ProxyConfig) -> StoreReport:
    """Return what is to be said of a store that has its files in ``path``."""
    try:
        if not path.exists():
            return StoreReport(0, warnings=_cannot_make(path), is_there=False)
        if not path.is_dir():
            return StoreReport(None, warnings=(f"{path} is no directory; name one, or one that is not there yet",))
        restored = StoreDirectory(path).look(is_lenient=store.topic is not None)
    except ForeignStoreError as error:
        then = "it is set aside at the start" if store.topic else "start the version that wrote it, or move it away"
        return StoreReport(None, warnings=(f"{path}: {error}; {then}",))
    except OSError as error:
        told = f"{path} cannot be read: {error.strerror or error}; {_GIVE_IT}"
        return StoreReport(None, warnings=(told,))
    warnings = [f"{path}/{fault}; what follows there is set aside at the start" for fault in restored.faults]
    if restored.left_out is not None:
        warnings.append(f"{path}/{restored.left_out}")
    if not os.access(path, os.W_OK | os.X_OK):
        warnings.append(f"{path} may not be written by the user who asks; {_GIVE_IT}")
    now_ms = time.time_ns() // 1_000_000
    both = InForce(config, name=str(path), now_ms=now_ms)
    both.change((Change(*one) for one in restored.rules.items()), now_ms=now_ms)
    return StoreReport(len(restored.rules), both.doubles, tuple(warnings))


def _cannot_make(path: Path) -> tuple[str, ...]:
    """Return why a directory that is not there cannot be made at the start, if so."""
    parent = next(one for one in path.absolute().parents if one.exists())
    if parent.is_dir() and os.access(parent, os.W_OK | os.X_OK):
        return ()
    return (f"{path} is not there, and the user who asks cannot make it in {parent}; make it, and {_GIVE_IT}",)
