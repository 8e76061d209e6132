"""Lists all checks of a configuration file that concern more than one key.

Some report errors, others warn of valid settings that are most likely a mistake. They work on what the schema has read,
so a value that the schema refuses is None for them, and one fault of it is reported.
"""

from collections.abc import Callable, Iterator
from typing import Final

from kafka_quota_proxy.config import (
    cluster_checks,
    fair_call_queue_checks,
    listener_checks,
    quota_checks,
    replication_checks,
    weak_limit_checks,
)
from kafka_quota_proxy.config.document import Document, Finding
from kafka_quota_proxy.config.one_broker_checks import check_one_broker
from kafka_quota_proxy.config.rule_reach_checks import check_rule_reach
from kafka_quota_proxy.config.sections import Part
from kafka_quota_proxy.config.tls_files import check_files
from kafka_quota_proxy.config.token_file import check_token_file

# Takes what the file says and the document, which has the line of each key.
Check = Callable[[Part, Document], Iterator[Finding]]

CHECKS: Final[tuple[Check, ...]] = (
    *listener_checks.CHECKS,
    check_one_broker,
    *quota_checks.CHECKS,
    *replication_checks.CHECKS,
    *fair_call_queue_checks.CHECKS,
    *cluster_checks.CHECKS,
    check_rule_reach,
    *weak_limit_checks.CHECKS,
)
# What this check finds changes with time.
CHECKS_OF_NOW: Final[tuple[Check, ...]] = (quota_checks.warn_of_expired,)
# These read other files.
CHECKS_OF_FILES: Final[tuple[Check, ...]] = (
    check_files,
    check_token_file,
    fair_call_queue_checks.check_identity_functions,
)
