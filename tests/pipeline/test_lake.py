"""A lake is told from a log by its files, and a session gets what it needs for one."""

from pathlib import Path

from pyspark import __version__ as spark_version

from kafka_quota_proxy.pipeline.lake import DELTA, is_lake, settings


def test_a_lake_is_recognised(tmp_path: Path) -> None:
    (tmp_path / "lake" / "_delta_log").mkdir(parents=True)

    assert is_lake(f"{tmp_path}/lake/")
    assert not is_lake(str(tmp_path))
    assert not is_lake("kafka://broker1:9092/usage")


def test_spark_downloads_delta_lake_for_its_own_version_unless_the_jars_are_named() -> None:
    assert f"io.delta:delta-spark_{'.'.join(spark_version.split('.')[:2])}_2.13:4.4.0" == DELTA
    assert settings({})["spark.jars.packages"] == DELTA
    assert settings({"spark.jars.packages": "a:b:1"})["spark.jars.packages"] == f"a:b:1,{DELTA}"
    named = {"spark.jars": "/jars/delta-spark_4.2_2.13-4.4.0.jar,/jars/delta-storage-4.4.0.jar"}
    assert "spark.jars.packages" not in settings(named)
    assert settings(named)["spark.jars"] == named["spark.jars"]
