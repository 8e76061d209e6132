"""An example for Airflow: the usage log becomes a lake every hour, and limits are suggested every Monday.

The connection ``spark_default`` names the Spark cluster. Needs apache-airflow-providers-apache-spark. Put this file
into the directory of DAGs, and change the three places.
"""

from datetime import UTC, datetime, timedelta

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import DAG

PROGRAM = "/opt/kafka-quota-pipeline/submit.py"  # deploy/spark/submit.py
LOG = "kafka://broker1:9092/kafka-quota-usage"
LAKE = "s3a://quotas/lake"
JARS = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.1,io.delta:delta-spark_4.2_2.13:4.4.0"
# A job that failed adds nothing, and one that runs again adds no record twice.
TRIES = {"retries": 3, "retry_delay": timedelta(minutes=5)}
FIRST = datetime(2026, 11, 1, tzinfo=UTC)


def pipeline(task: str, *words: str) -> SparkSubmitOperator:
    """Return a task that runs a command of kafka-quota-pipeline."""
    return SparkSubmitOperator(task_id=task, application=PROGRAM, application_args=[*words], packages=JARS)


# Of two runs of ingest at once, one would fail.
with DAG(
    "kafka_quotas_lake", schedule="@hourly", start_date=FIRST, catchup=False, max_active_runs=1, default_args=TRIES
) as lake:
    pipeline("ingest", "ingest", "--usage", LOG, "--lake", LAKE, "--from", "{{ macros.ds_add(ds, -1) }}")

with DAG("kafka_quotas_limits", schedule="0 6 * * 1", start_date=FIRST, catchup=False, default_args=TRIES) as limits:
    # The four weeks before the day on which the task is due.
    span = ("--from", "{{ macros.ds_add(ds, -28) }}", "--until", "{{ ds }}")
    pipeline("suggest", "capacity", "--usage", LAKE, *span, "--out", "s3a://quotas/limits/{{ ds }}")
