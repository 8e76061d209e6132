"""Measures the cost of work in a running Spark session, for tests that are too short to start a process."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from bench.spark_run import Memory, Run, below


def spent(spark: SparkSession, work: Callable[[], None]) -> Run:
    """Do some work in a local Spark session, and return its cost.

    ``seconds`` is the processor time of Spark's tasks, its Python workers and this process, without query planning.
    ``python_bytes`` is what the largest Python worker has: how many run depends on the partitions and on work before.
    """
    jvm: Any = spark._jvm
    pid = jvm.java.lang.ProcessHandle.current().pid()
    (source,) = _listed(jvm.org.apache.spark.SparkEnv.get().metricsSystem().getSourcesByName("executor"))
    counter = source.metricRegistry().counter

    def seconds() -> float:
        return float(counter("cpuTime").getCount() / 1e9 + _python_s(pid) + time.process_time())

    began_s, spilled_bytes, memory = seconds(), counter("diskBytesSpilled").getCount(), Memory(pid)
    work()
    memory.end()
    return Run(
        seconds=seconds() - began_s,
        jvm_bytes=memory.jvm,
        python_bytes=memory.one_python,
        spilled_bytes=counter("diskBytesSpilled").getCount() - spilled_bytes,
    )


def _listed(found: Any) -> list[Any]:  # noqa: ANN401  (a Seq of Scala)
    return [found.apply(at) for at in range(found.size())]


def _python_s(jvm: int) -> float:
    """Return the processor time of Spark's Python workers, also of those that have ended."""
    ticks = 0
    for pid in below(jvm):
        if pid != jvm:
            # utime and stime of the process and of its ended children. proc_pid_stat(5) counts fields from 1 and
            # includes the two before these.
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")
