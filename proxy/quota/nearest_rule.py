"""Finds the rule whose name is one edit away from that of a client that no rule limits, which may be misspelt."""

from typing import Final

from kafka_quota_proxy.config.model import QuotaRule
from kafka_quota_proxy.config.spelling import nearest
from kafka_quota_proxy.proxy.quota.entity import Tags
from kafka_quota_proxy.proxy.quota.rule_tables import RuleTable, RuleTables

# With more rules, a comparison with all of them would take a millisecond for each client.
_MOST_COMPARED: Final = 200


def tables_in_use(rules: RuleTables) -> list[RuleTable]:
    """Return the tables of the kinds of quota that have rules for clients."""
    return [table for table in (*rules.tables.values(), rules.connections) if len(table)]


def nearest_rule(rules: RuleTables, client: Tags) -> QuotaRule | None:
    """Return a rule whose client-id, or whose user, is spelt like that of ``client`` but for one edit, if any.

    With many rules nothing is compared.
    """
    tables = tables_in_use(rules)
    if sum(map(len, tables)) > _MOST_COMPARED:
        return None
    of_client_ids: dict[str, QuotaRule] = {}
    of_users: dict[str, QuotaRule] = {}
    for rule in (rule for table in tables for rule in table.rules()):
        if isinstance(rule.client_id, str):
            if rule.user == client.user or rule.client_id.lower() not in of_client_ids:
                of_client_ids[rule.client_id.lower()] = rule
        elif isinstance(rule.user, str):
            of_users[rule.user.lower()] = rule
    name = nearest(client.client_id.lower(), of_client_ids)
    if name is not None:
        return of_client_ids[name]
    name = nearest(client.user.lower(), of_users)
    return None if name is None else of_users[name]


def guess_words(rule: QuotaRule) -> str:
    """Return the question whether this rule was meant, such as ``did you mean client-id='etl'?``."""
    parts = (("user", rule.user), ("client-id", rule.client_id))
    named = " ".join(f"{key}={name!r}" for key, name in parts if isinstance(name, str))
    return f"did you mean {named}?"
