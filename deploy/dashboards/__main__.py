"""Writes Grafana's dashboards: ``python -m deploy.dashboards`` writes the JSON files in ``deploy/grafana``."""

from pathlib import Path
from typing import Final

from grafana_foundation_sdk.cog.encoder import JSONEncoder

from deploy.dashboards import client, kafka_quotas, overview, queue, replication

DIRECTORY: Final = Path(__file__).parents[1] / "grafana"


def files() -> dict[str, str]:
    """Return the name and the text of each file."""
    modules = {
        "overview": overview,
        "client": client,
        "replication": replication,
        "queue": queue,
        "kafka-quotas": kafka_quotas,
    }
    encoder = JSONEncoder(sort_keys=True, indent=1, ensure_ascii=False)
    return {f"{name}.json": encoder.encode(one.DASHBOARD) + "\n" for name, one in modules.items()}


def main() -> None:
    """Write all files."""
    DIRECTORY.mkdir(exist_ok=True)
    for name, text in files().items():
        (DIRECTORY / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
