"""The files on the page about monitoring are valid, and fit together and to the alert rules."""

import re
from pathlib import Path

import yaml

from kafka_quota_proxy.config.load import load_bytes
from tests.support.pages import block
from tests.support.promtool import promtool

DEPLOY = Path(__file__).parents[1] / "deploy"
PAGE = "how-to/monitor.md"


def test_prometheus_accepts_its_file_with_the_alert_rules_beside_it(tmp_path: Path) -> None:
    (tmp_path / "prometheus.yml").write_text(block(PAGE, "yml", holding="scrape_configs").text)
    (tmp_path / "alerts.yaml").write_text((DEPLOY / "alerts.yaml").read_text(encoding="utf-8"))

    promtool("check", "config", tmp_path / "prometheus.yml")


def test_each_metric_of_a_query_exists() -> None:
    page = (DEPLOY.parent / "docs" / PAGE).read_text(encoding="utf-8")
    known = (DEPLOY.parent / "docs/reference/metrics.md").read_text(encoding="utf-8")
    known += (DEPLOY / "alerts.yaml").read_text(encoding="utf-8")
    names = set(re.findall(r"\b(?:instance:)?kafka_quota_proxy_\w+(?::\w+)?", page))

    assert len(names) == 4
    assert {name for name in names if name not in known} == set()


def test_the_scraped_port_is_the_one_of_the_proxy_and_the_job_the_one_of_the_rules() -> None:
    admin = block(PAGE, "yml", holding="metrics_bind").text
    listeners = "listeners: [{name: a, bind: 127.0.0.1:9192, upstream: 127.0.0.1:9092}]\n"
    loaded = load_bytes((listeners + admin).encode(), file="proxy.yaml")
    prometheus = yaml.safe_load(block(PAGE, "yml", holding="scrape_configs").text)

    assert loaded.config.admin is not None
    assert loaded.config.admin.metrics_bind is not None
    (job,) = prometheus["scrape_configs"]
    targets = [target for one in job["static_configs"] for target in one["targets"]]
    assert {int(target.rpartition(":")[2]) for target in targets} == {loaded.config.admin.metrics_bind.port}
    rules = (DEPLOY / "alerts.yaml").read_text(encoding="utf-8")
    assert set(re.findall(r'job="([^"]+)"', rules)) == {job["job_name"]}
    assert prometheus["global"]["scrape_interval"] == "15s"  # what the dashboards expect of the data source
