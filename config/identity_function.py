"""Imports the operator's Python function that returns the identity to which the fair call queue charges a request."""

from collections.abc import Callable
from importlib import import_module

from kafka_quota_proxy.config.fair_call_queue import OwnIdentityProvider

# Takes the user (``ANONYMOUS`` without a login), the client-id and the address. Returns the name of an identity, or
# None for the identity ``UNKNOWN``.
IdentityFunction = Callable[[str, str, str], str | None]


def load_identity_function(provider: OwnIdentityProvider) -> IdentityFunction:
    """Import the operator's function. Raises ValueError if there is no such module or function."""
    try:
        module = import_module(provider.module)
    except Exception as error:  # the operator's code may raise anything
        message = f"{provider.module} cannot be imported: {type(error).__name__}: {error}"
        raise ValueError(f"{message}; is its directory on PYTHONPATH?") from error
    function: IdentityFunction | None = getattr(module, provider.function, None)
    if not callable(function):
        raise ValueError(f"{provider.module} has no function {provider.function}")  # noqa: TRY004 - of the file
    return function
