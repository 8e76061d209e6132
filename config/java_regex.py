r"""Translation of Java's regular expressions to RE2's.

Kafka's mapping rules are ``java.util.regex.Pattern``, which backtracks. Names come from clients, so here they are
matched in linear time (``config.linear_regex``). Most of Java's syntax means the same in RE2; some is spelled
differently; some has no counterpart. So each pattern is parsed by Java's grammar and written again for RE2. A construct
without an exact counterpart is refused, with a remedy: a rule that silently gives another user than Kafka is worse
than no rule.

Java without flags is ASCII (``\w``, ``\d``, ``(?i)``), where RE2's ``(?i)`` is Unicode; ``.`` stops at six line
terminators, not at one. Java's ``$`` also matches before a final terminator, and here only at the end: a caller
must not match a name that ends with any of ``LINE_TERMINATORS``.

Source: ``java.util.regex.Pattern`` of Java 17; ``tests/end_to_end/test_principal_mapping.py`` compares the two.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final, NoReturn

from kafka_quota_proxy.config.java_characters import CONTROLS, POSIX, SETS, Flags, cased, character_range, complement
from kafka_quota_proxy.config.linear_regex import LinearRegexError, Pattern, compile_linear

_MAX_DEPTH: Final = 50  # groups within groups; bounds the recursion here and in re
_MAX_REPEAT: Final = 1_000  # RE2's own bound
LINE_TERMINATORS: Final = ("\n", "\r", "\x85", "\u2028", "\u2029")
_ANY: Final = r"[^\n\r\x85\x{2028}\x{2029}]"
_END: Final = r"\z"
_ANCHORS: Final = {"A": r"\A", "z": _END, "Z": _END}
_BACKTRACKS: Final = "which cannot be matched in time linear in a client's name; write the rule without it"
_REFUSED_ESCAPES: Final = {
    "b": "means other characters since Java 19 than before; write the characters that may stand there",
    "B": "means other characters since Java 19 than before; write the characters that may stand there",
    "G": "stands where the last match ended, which is of no use in a rule; leave it out",
    "R": r"has no counterpart here; write (?:\r\n|[\n\r])",
    "X": "has no counterpart here; write the characters that may stand there",
    "N": r"has no counterpart here; write the character itself or \x{…}",
    "k": f"is a back-reference, {_BACKTRACKS}",
    **{str(number): f"is a back-reference, {_BACKTRACKS}" for number in range(1, 10)},
}
_REPEAT: Final = re.compile(r"\{([0-9]{1,9})(?:(,)([0-9]{1,9})?)?\}")
_GROUP_NAME: Final = re.compile(r"\?<([a-zA-Z][a-zA-Z0-9]*)>")
_INLINE_FLAGS: Final = re.compile(r"\?([a-zA-Z]*)(?:-([a-zA-Z]*))?([:)])")
_BACKTRACKING_GROUPS: Final = ("?=", "?!", "?<=", "?<!", "?>")


class JavaRegexError(ValueError):
    """Not a regular expression in Java's syntax, or without a counterpart in RE2. ``str`` gives the remedy."""


@dataclass(frozen=True, slots=True)
class _Atom:
    text: str
    can_repeat: bool = True  # characters, not a place between them
    can_be_empty: bool = False


def compile_java(pattern: str) -> Pattern:
    """Return a pattern that matches as ``pattern`` does in Java, except for ``$``; groups keep numbers and names.

    Raises:
        JavaRegexError: Java would refuse it, or it cannot be matched in linear time.
    """
    translated = _Translator(pattern).translate()
    try:
        return compile_linear(translated)
    except LinearRegexError as error:  # only RE2 finds this: too many repetitions in total
        raise JavaRegexError(f"cannot be matched in time linear in a client's name: {error}") from error


class _Translator:
    """One pass over a pattern. Each method reads from ``_at`` and moves it past what it read."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0
        self._names: set[str] = set()

    def translate(self) -> str:
        text = self._alternatives(Flags(), depth=0).text
        if self._at < len(self._pattern):
            self._refuse(r"a ) closes no group; write \) for the character")
        return text

    def _alternatives(self, flags: Flags, depth: int) -> _Atom:
        """Read to the ``)`` that ends this group, or to the end."""
        if depth > _MAX_DEPTH:
            self._refuse(f"more than {_MAX_DEPTH} groups within groups")
        flags = self._leading_flags(flags)
        text, is_empty, can_be_empty = "", True, False
        while self._at < len(self._pattern) and self._pattern[self._at] != ")":
            if self._take("|"):
                text += "|"
                can_be_empty |= is_empty
                is_empty = True
            else:
                atom = self._atom(flags, depth)
                quantifier = self._quantifier(atom)
                text += atom.text + quantifier
                is_empty &= atom.can_be_empty or quantifier.startswith(("?", "*", "{0"))
        return _Atom(text, can_be_empty=can_be_empty or is_empty)

    def _leading_flags(self, flags: Flags) -> Flags:
        """``(?i)`` at the start of a group holds to its end."""
        while self._pattern.startswith("(?", self._at):
            found = _INLINE_FLAGS.match(self._pattern, self._at + 1)
            if found is None or found[3] != ")":
                break
            flags = self._changed(flags, found)
            self._at = found.end()
        return flags

    def _changed(self, flags: Flags, found: re.Match[str]) -> Flags:
        on, off = found[1], found[2] or ""
        for flag in on + off:
            if flag not in "is":
                self._refuse(f"the flag {flag} has no counterpart here; only i and s can be used")
        return Flags(
            ignore_case=("i" in on or flags.ignore_case) and "i" not in off,
            dot_all=("s" in on or flags.dot_all) and "s" not in off,
        )

    def _atom(self, flags: Flags, depth: int) -> _Atom:
        character = self._next()
        match character:
            case "(":
                return self._group(flags, depth)
            case "[":
                return _Atom(self._class(flags))
            case "\\":
                return self._escape(flags)
            case ".":
                return _Atom("(?s:.)" if flags.dot_all else _ANY)
            case "^":
                return _Atom(r"\A", can_repeat=False, can_be_empty=True)
            case "$":
                return _Atom(_END, can_repeat=False, can_be_empty=True)
            case "*" | "+" | "?" | "{":
                return self._refuse(f"{character} repeats nothing; write \\{character} for the character")
        return _Atom(cased(character, flags))

    def _quantifier(self, atom: _Atom) -> str:
        counted = _REPEAT.match(self._pattern, self._at)
        if counted:
            self._at = counted.end()
            text = self._counted(counted)
        elif self._peek() in ("*", "+", "?"):
            text = self._next()
        else:
            return ""
        if not atom.can_repeat:
            self._refuse(f"{text} repeats a place, not characters; leave it out")
        if atom.can_be_empty and text != "?":
            # Java and RE2 end such a repetition at different places.
            self._refuse(f"{text} repeats a group that can be empty; let each repetition take one character at least")
        if self._peek() == "+":
            self._refuse(f"{text}+ is possessive, {_BACKTRACKS}")
        if self._peek() == "?":
            text += self._next()
        if self._peek() in ("*", "+", "?", "{"):
            self._refuse(f"{self._peek()} repeats a repetition; put the first one into a group")
        return text

    def _counted(self, found: re.Match[str]) -> str:
        least, most = int(found[1]), int(found[3] or found[1])
        if max(least, most) > _MAX_REPEAT:
            self._refuse(f"{found[0]} is too many; at most {_MAX_REPEAT} can be asked for")
        if most < least:
            self._refuse(f"{found[0]} asks for at most {most} and at least {least}")
        return f"{{{least}{found[2] or ''}{'' if found[3] is None else most}}}"

    def _group(self, flags: Flags, depth: int) -> _Atom:
        if self._peek() != "?":
            return self._inner("(", flags, depth)
        named = _GROUP_NAME.match(self._pattern, self._at)
        if named:
            if named[1] in self._names:
                self._refuse(f"two groups are named {named[1]}; give each its own name")
            self._at = named.end()
            self._names.add(named[1])
            return self._inner(f"(?P<{named[1]}>", flags, depth)
        if self._take("?:"):
            return self._inner("(?:", flags, depth)
        for opening in _BACKTRACKING_GROUPS:
            if self._pattern.startswith(opening, self._at):
                self._refuse(f"({opening}…) looks around or gives nothing back, {_BACKTRACKS}")
        found = _INLINE_FLAGS.match(self._pattern, self._at)
        if found is None:
            self._refuse(f"({self._pattern[self._at : self._at + 3]} begins no group that Java knows")
        if found[3] == ")":
            self._refuse(f"({found[0]} is in the middle; write it at the start, or as a group: ({found[0][:-1]}:…)")
        self._at = found.end()
        return self._inner("(?:", self._changed(flags, found), depth)

    def _inner(self, opening: str, flags: Flags, depth: int) -> _Atom:
        inner = self._alternatives(flags, depth + 1)
        self._close()
        return replace(inner, text=f"{opening}{inner.text})")

    def _close(self) -> None:
        if not self._take(")"):
            self._refuse(r"a ( is not closed; write \( for the character")

    def _escape(self, flags: Flags) -> _Atom:
        character = self._next("a backslash at the end escapes nothing")
        if character in _ANCHORS:
            return _Atom(_ANCHORS[character], can_repeat=False, can_be_empty=True)
        if character == "Q":
            return self._quoted(flags)
        members = self._set(character, flags)
        if members is not None:
            return _Atom(f"[{members}]")
        return _Atom(cased(self._escaped_character(character), flags))

    def _quoted(self, flags: Flags) -> _Atom:
        r"""``\Q`` to ``\E``, or to the end: each character is itself. A repetition behind it holds for the last."""
        end = self._pattern.find(r"\E", self._at)
        text = self._pattern[self._at : end if end >= 0 else len(self._pattern)]
        self._at += len(text) + (2 if end >= 0 else 0)
        literals = "".join(cased(character, flags) for character in text)
        return _Atom(literals, can_repeat=bool(text), can_be_empty=not text)

    def _set(self, character: str, flags: Flags | None) -> str | None:
        r"""Return the members of a class such as ``\d``; None if the character names none."""
        if character in SETS:
            return SETS[character]
        if character.lower() in SETS and character.isupper():
            return complement(SETS[character.lower()])
        if character not in ("p", "P"):
            return None
        found = re.compile(r"\{(?:\^)?(\w+)\}", re.ASCII).match(self._pattern, self._at)
        name = found[1] if found else ""
        if found is None or name not in POSIX or "^" in found[0]:
            self._refuse(f"\\{character}{found[0] if found else ''} has no counterpart here; list the characters")
        if name in ("Lower", "Upper") and (flags is None or flags.ignore_case):
            self._refuse(f"\\{character}{{{name}}} means other characters in later Javas under (?i); write [a-zA-Z]")
        self._at = found.end()
        return complement(POSIX[name]) if character == "P" else POSIX[name]

    def _escaped_character(self, character: str) -> str:
        if character in CONTROLS:
            return CONTROLS[character]
        match character:
            case "0":
                return self._numbered(r"[0-3][0-7]{1,2}|[0-7]{1,2}", 8, r"\0 is followed by an octal number")
            case "x":
                return self._numbered(r"[0-9a-fA-F]{2}|\{[0-9a-fA-F]{1,8}\}", 16, r"\x is followed by hh or {h…h}")
            case "u":
                return self._numbered("[0-9a-fA-F]{4}", 16, r"\u is followed by hhhh")
            case "c":
                return chr(ord(self._next(r"\c is followed by a character")) ^ 64)
        if character in _REFUSED_ESCAPES:
            self._refuse(f"\\{character} {_REFUSED_ESCAPES[character]}")
        if character.isascii() and character.isalnum():
            self._refuse(f"\\{character} is unknown to Java")
        return character

    def _numbered(self, form: str, base: int, complaint: str) -> str:
        found = re.compile(form).match(self._pattern, self._at)
        if found is None:
            self._refuse(complaint)
        self._at = found.end()
        number = int(found[0].strip("{}"), base)
        if number > 0x10FFFF or 0xD800 <= number <= 0xDFFF:
            self._refuse(f"{found[0]} is no character by itself; write the character")
        return chr(number)

    def _class(self, flags: Flags) -> str:
        negation = "^" if self._take("^") else ""
        members = ""
        is_first = True
        while is_first or self._peek() != "]":
            members += self._member(flags)
            is_first = False
        self._at += 1
        return f"[{negation}{members}]"

    def _member(self, flags: Flags) -> str:
        """Read one character, range or set within brackets."""
        start, members = self._class_character()
        if members is not None:
            return members
        if self._peek() != "-" or self._pattern[self._at + 1 : self._at + 2] in ("]", ""):
            return character_range(start, start, flags)
        self._at += 1
        end, members = self._class_character()
        if members is not None:
            self._refuse(r"a range ends with a set; write \- for the character -")
        if end < start:
            self._refuse(f"the range {start}-{end} runs backwards")
        return character_range(start, end, flags)

    def _class_character(self) -> tuple[str, str | None]:
        r"""Return a character, or the members of a set such as ``\d``."""
        character = self._next(r"a [ is not closed; write \[ for the character")
        if character == "[":
            self._refuse(r"classes within classes have no counterpart here; write \[ for the character")
        if character == "&" and self._peek() == "&":
            self._refuse(r"&& within brackets has no counterpart here; write \& for the character")
        if character != "\\":
            return character, None
        character = self._next("a backslash at the end escapes nothing")
        if character in "QE":
            self._refuse(rf"\{character} within brackets is not supported; put a backslash before each character")
        members = self._set(character, None)
        return ("", members) if members is not None else (self._escaped_character(character), None)

    def _peek(self) -> str:
        return self._pattern[self._at : self._at + 1]

    def _next(self, complaint: str = "") -> str:
        if self._at >= len(self._pattern):
            self._refuse(complaint)
        self._at += 1
        return self._pattern[self._at - 1]

    def _take(self, text: str) -> bool:
        if not self._pattern.startswith(text, self._at):
            return False
        self._at += len(text)
        return True

    def _refuse(self, message: str) -> NoReturn:
        raise JavaRegexError(message)
