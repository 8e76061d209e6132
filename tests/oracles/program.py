"""Starts the Java programs that let tests drive Kafka's and Hadoop's own classes, and speaks to them line by line."""

import subprocess
from pathlib import Path
from types import TracebackType
from typing import IO, Final, Self

from tests.end_to_end.support.artifacts import java
from tests.end_to_end.support.quick_java import compiled

_SOURCES: Final = Path(__file__).parent / "java"
_JAVA_OPTIONS: Final = (
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-Xmx256m",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)


class OracleError(Exception):
    """A program could not carry out a command, or has ended."""


class Program:
    """A running Java program that answers each line with a line. The words of a line are separated by tabs.

    Args:
        main: The name of its main class, whose source is in the directory ``java``.
        classpath: Where the classes are that it drives.
    """

    def __init__(self, main: str, classpath: str) -> None:
        source = _SOURCES.joinpath(*main.split(".")).with_suffix(".java")
        classes = compiled(source, classpath, among=_SOURCES)
        self._main = main
        self._process = subprocess.Popen(
            [java(), *_JAVA_OPTIONS, "-cp", f"{classes}:{classpath}", main],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._input.close()  # the program ends at the end of its input
        self._process.wait(timeout=30)
        self._output.close()

    def ask(self, *words: object) -> str:
        """Give one command, and return its answer. Raises OracleError if the program cannot carry it out."""
        return self.ask_all([words])[0]

    def ask_all(self, commands: list[tuple[object, ...]]) -> list[str]:
        """Give several commands at once, and return their answers. Raises OracleError if one cannot be carried out."""
        lines = ["\t".join(map(str, words)) for words in commands]
        self._input.write("".join(f"{line}\n" for line in lines))
        self._input.flush()
        answers = [self._output.readline().rstrip("\n") for _ in lines]
        for line, answer in zip(lines, answers, strict=True):
            if not answer.startswith("="):
                raise OracleError(f"{self._main}: {line!r}: {answer or 'it has ended'}")
        return [answer[1:] for answer in answers]

    @property
    def _input(self) -> IO[str]:
        assert self._process.stdin is not None
        return self._process.stdin

    @property
    def _output(self) -> IO[str]:
        assert self._process.stdout is not None
        return self._process.stdout
