"""``kafka-quota-pipeline balance`` divides the limits of a cluster over its proxies."""

import argparse
import sys
from urllib.parse import quote

from kafka_quota_proxy.pipeline.balance import rules_of, shares, use_by_proxy
from kafka_quota_proxy.pipeline.candidate_quotas import CandidateQuotas
from kafka_quota_proxy.pipeline.commands.execution import running, say, usage_of
from kafka_quota_proxy.pipeline.errors import UsageError
from kafka_quota_proxy.pipeline.quotas_file import as_file, read_quotas
from kafka_quota_proxy.pipeline.whatif import entities, resolved


def execute(args: argparse.Namespace) -> int:
    """Divide the limits, and write the rules of each proxy to OUT/PROXY/quotas.yaml. Return the exit status."""
    config = read_quotas(args.limits)
    with running(args) as (spark, output):
        records = usage_of(args, spark, output).records
        say("measuring demand")
        proxies = [row["proxy"] for row in records.select("proxy").distinct().orderBy("proxy").collect()]
        if not proxies:
            raise UsageError(f"--usage {args.usage}: has no record, so there is no proxy to divide limits for")
        found = spark.createDataFrame(resolved(entities(records), CandidateQuotas(config=config)))
        used = output.keep("demand", use_by_proxy(records, found))
        output.table("demands", used.orderBy("kind", "bucket_user", "bucket_client_id", "proxy"), form="csv")
        # There is one row for each entity and proxy, as many as the rules of the files.
        given = shares([row.asDict() for row in used.collect()], proxies, floor=args.floor)
        files = []
        for proxy in proxies:
            rules = [(rule, "") for rule in rules_of(proxy, given, config.quotas, len(proxies))]
            head = [
                f"Of {proxy}: its part of the limits of {args.limits}, divided over {len(proxies)} proxies by demand."
            ]
            name = f"{quote(proxy, safe='')}/quotas.yaml"
            output.text(name, as_file(rules, head=head, held=config))
            files.append(f"{args.out}/{name}")
    sys.stdout.write("".join(f"{file}\n" for file in files))
    return 0
