"""What some work took of a session that goes on: for tests that have no time for a process each."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from bench.spark_run import Memory, Run, below


def spent(spark: SparkSession, work: Callable[[], None]) -> Run:
    """Do some work in a local session, and return what it took.

    ``seconds`` are of processors, so that nothing else on the machine counts: of Spark's tasks, of its Python and of
    this process. What the JVM takes to plan is not among them.
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
        python_bytes=memory.python,
        spilled_bytes=counter("diskBytesSpilled").getCount() - spilled_bytes,
    )


def _listed(found: Any) -> list[Any]:  # noqa: ANN401  (a Seq of Scala)
    return [found.apply(at) for at in range(found.size())]


def _python_s(jvm: int) -> float:
    """Return the time of Spark's Python workers, those that have ended as well."""
    ticks = 0
    for pid in below(jvm):
        if pid != jvm:
            # utime, stime, and both of children that have ended; proc_pid_stat(5) counts from 1, and from the name.
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")
