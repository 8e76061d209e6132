"""What all commands do alike: a session, an output, the log read, and words about it on stderr."""

import argparse
import contextlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import DataFrame, SparkSession

from pipeline.reading import Usage, read
from pipeline.session import session
from pipeline.writing import Output, staged


@contextmanager
def running(args: argparse.Namespace) -> Iterator[tuple[SparkSession, Output]]:
    """Give a session and an output that appears as ``--out`` at the end."""
    spark = session(master=args.master, conf=dict(args.conf))
    with staged(spark, args.out, explain=explain if args.explain else None) as output:
        yield spark, output


def usage_of(args: argparse.Namespace, spark: SparkSession, output: Output) -> Usage:
    """Read ``--usage`` and say what was left out of it."""
    say(f"reading {args.usage}")
    usage = read(spark, args.usage, output)
    for words in usage.words():
        say(words)
    return usage


def say(words: str) -> None:
    """Tell the user how far it is."""
    sys.stderr.write(f"{words}\n")
    sys.stderr.flush()


def explain(name: str, frame: DataFrame) -> None:
    """Show the plan of a table."""
    # DataFrame.explain prints to stdout, where the results go.
    with contextlib.redirect_stdout(sys.stderr):
        sys.stdout.write(f"== {name.strip('/')} ==\n")
        frame.explain("formatted")
