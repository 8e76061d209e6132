"""Imports the Python function of the operator that names the identity to which a request is charged.

The fair call queue uses it instead of a built-in identity provider.
"""

from collections.abc import Callable
from importlib import import_module

from kafka_quota_proxy.config.fair_call_queue import OwnIdentityProvider

# Takes the user (``ANONYMOUS`` without a login), the client-id and the address. Returns the name of an identity, or
# None for the identity ``UNKNOWN``.
IdentityFunction = Callable[[str, str, str], str | None]


def load_identity_function(provider: OwnIdentityProvider) -> IdentityFunction:
    """Import the function.

    Raises ValueError if its module cannot be imported, or if the module has no such function.
    """
    try:
        module = import_module(provider.module)
    except Exception as error:  # the operator's code may raise anything
        message = f"{provider.module} cannot be imported: {type(error).__name__}: {error}"
        raise ValueError(f"{message}; is its directory on PYTHONPATH?") from error
    function: IdentityFunction | None = getattr(module, provider.function, None)
    if not callable(function):
        raise ValueError(f"{provider.module} has no function {provider.function}")  # noqa: TRY004 - of the file
    return function
