"""The operator's own function that names the identity to which the fair call queue charges a request."""

from collections.abc import Callable
from importlib import import_module

from kafka_quota_proxy.config.fair_call_queue import OwnIdentityProvider

# User (``ANONYMOUS`` without a login), client-id and address to a name; None where they have none.
IdentityFunction = Callable[[str, str, str], str | None]


def load_identity_function(provider: OwnIdentityProvider) -> IdentityFunction:
    """Import the function. Raises ValueError: it cannot be imported, or its module has no such function."""
    try:
        module = import_module(provider.module)
    except Exception as error:  # the operator's code may raise anything
        message = f"{provider.module} cannot be imported: {type(error).__name__}: {error}"
        raise ValueError(f"{message}; is its directory on PYTHONPATH?") from error
    function: IdentityFunction | None = getattr(module, provider.function, None)
    if not callable(function):
        raise ValueError(f"{provider.module} has no function {provider.function}")  # noqa: TRY004 - of the file
    return function
