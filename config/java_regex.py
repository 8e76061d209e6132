r"""Translates Java's regular expressions into RE2's.

Kafka's principal mapping rules use ``java.util.regex.Pattern``, which backtracks. Names come from clients, so the proxy
must match them in linear time (``config.linear_regex``). This module parses each pattern by Java's grammar, and writes
it again for RE2. It refuses a construct that RE2 cannot express exactly, because a rule must give the same user as in
Kafka.

The two languages differ. Java's ``\w``, ``\d`` and ``(?i)`` apply to ASCII, but RE2's ``(?i)`` applies to Unicode.
Java's ``.`` excludes six line terminators, RE2's ``.`` only excludes the line feed. Java's ``$`` also matches before a
line terminator at the end of the name, but the translated ``$`` does not. So a caller must not match a name that ends
with one of ``LINE_TERMINATORS``.

Source: ``java.util.regex.Pattern`` of Java 17; ``tests/end_to_end/test_principal_mapping.py`` compares the two.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final, NoReturn

from kafka_quota_proxy.config.linear_regex import LinearRegexError, Pattern, compile_linear

_MAX_DEPTH: Final = 50  # of nested groups; it bounds the recursion in this module and in re
_MAX_REPEAT: Final = 1_000  # RE2's own bound
LINE_TERMINATORS: Final = ("\n", "\r", "\x85", "\u2028", "\u2029")
_ANY: Final = r"[^\n\r\x85\x{2028}\x{2029}]"
_ANCHORS: Final = {"A": r"\A", "z": r"\z", "Z": r"\z"}
# What stands for Java's \d, \w, ... within the brackets of a character class of RE2.
_SETS: Final = {
    "d": r"\d",
    "D": r"\D",
    "w": r"\w",
    "W": r"\W",
    "s": r"\t-\r\x20",  # RE2's own \s lacks the vertical tab
    "S": r"\x00-\x08\x0e-\x1f!-\x{10ffff}",
}
_CONTROLS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_BACKTRACKS: Final = "which cannot be matched in time linear in a client's name; write the rule without it"
_CODE: Final = re.compile(r"x(?P<hh>[0-9a-fA-F]{2})|x\{(?P<any>[0-9a-fA-F]{1,8})\}|u(?P<hhhh>[0-9a-fA-F]{4})")
_REPEAT: Final = re.compile(r"\{([0-9]{1,9})(?:(,)([0-9]{1,9})?)?\}")
_GROUP_NAME: Final = re.compile(r"\?<([a-zA-Z][a-zA-Z0-9]*)>")
_INLINE_FLAGS: Final = re.compile(r"\?([a-zA-Z]*)(?:-([a-zA-Z]*))?([:)])")
_BACKTRACKING_GROUP: Final = re.compile(r"\?(?:=|!|<=|<!|>)")

# The flags that are on: "i" (ASCII letters match in both cases) and "s" (a dot matches line terminators).
_Flags = frozenset[str]


class JavaRegexError(ValueError):
    """A pattern is not valid in Java, or RE2 cannot express it. ``str`` gives the remedy."""


@dataclass(frozen=True, slots=True)
class _Atom:
    text: str
    can_repeat: bool = True  # False for an anchor such as ^, which matches a place and no characters
    can_be_empty: bool = False


def compile_java(pattern: str) -> Pattern:
    """Return a compiled pattern that matches as ``pattern`` does in Java, except for ``$`` (see above).

    Groups keep their numbers and names. Raises JavaRegexError if the pattern is not valid or RE2 cannot express it.
    """
    translated = _Translator(pattern).translate()
    try:
        return compile_linear(translated)
    except LinearRegexError as error:  # only RE2 itself finds that there are too many repetitions in total
        raise JavaRegexError(f"cannot be matched in time linear in a client's name: {error}") from error


class _Translator:
    """Translates a pattern in a single pass. Each method reads from ``_at`` on, and moves ``_at`` past what it read."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0
        self._names: set[str] = set()

    def translate(self) -> str:
        text = self._alternatives(_Flags(), depth=0).text
        if self._at < len(self._pattern):
            _refuse(r"a ) closes no group; write \) for the character")
        return text

    def _alternatives(self, flags: _Flags, depth: int) -> _Atom:
        """Translate alternatives such as ``a|b``, up to the end of the current group or of the pattern."""
        if depth > _MAX_DEPTH:
            _refuse(f"more than {_MAX_DEPTH} groups within groups")
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

    def _leading_flags(self, flags: _Flags) -> _Flags:
        """Read flags such as ``(?i)`` at the start of a group, which apply until the end of the group."""
        while self._pattern.startswith("(?", self._at):
            found = _INLINE_FLAGS.match(self._pattern, self._at + 1)
            if found is None or found[3] != ")":
                break
            flags = _changed_flags(flags, found)
            self._at = found.end()
        return flags

    def _atom(self, flags: _Flags, depth: int) -> _Atom:
        character = self._next()
        match character:
            case "(":
                return self._group(flags, depth)
            case "[":
                return _Atom(self._class(flags))
            case "\\":
                return self._escape(flags)
            case ".":
                return _Atom("(?s:.)" if "s" in flags else _ANY)
            case "^":
                return _Atom(r"\A", can_repeat=False, can_be_empty=True)
            case "$":
                return _Atom(r"\z", can_repeat=False, can_be_empty=True)
            case "*" | "+" | "?" | "{":
                return _refuse(f"{character} repeats nothing; write \\{character} for the character")
        return _Atom(_cased(character, flags))

    def _quantifier(self, atom: _Atom) -> str:
        counted = _REPEAT.match(self._pattern, self._at)
        if counted:
            self._at = counted.end()
            text = _counted(counted)
        elif self._peek() in ("*", "+", "?"):
            text = self._next()
        else:
            return ""
        if not atom.can_repeat:
            _refuse(f"{text} repeats a position, not characters; remove it")
        if atom.can_be_empty and text != "?":
            # Java and RE2 end the repetition of a possibly empty group at different places.
            _refuse(f"{text} repeats a group that can be empty; let each repetition take one character at least")
        if self._peek() == "+":
            _refuse(f"{text}+ is possessive, {_BACKTRACKS}")
        if self._take("?"):
            text += "?"
        if self._peek() in ("*", "+", "?", "{"):
            _refuse(f"{self._peek()} repeats a repetition; put the first one into a group")
        return text

    def _group(self, flags: _Flags, depth: int) -> _Atom:
        opening = "("
        if named := _GROUP_NAME.match(self._pattern, self._at):
            if named[1] in self._names:
                _refuse(f"two groups are named {named[1]}; give each its own name")
            self._at = named.end()
            self._names.add(named[1])
            opening = f"(?P<{named[1]}>"
        elif found := _BACKTRACKING_GROUP.match(self._pattern, self._at):
            _refuse(f"({found[0]}…) looks around or gives nothing back, {_BACKTRACKS}")
        elif found := _INLINE_FLAGS.match(self._pattern, self._at):  # this includes (?: without a flag
            if found[3] == ")":
                _refuse(f"({found[0]} is in the middle; write it at the start, or as a group: ({found[0][:-1]}:…)")
            self._at = found.end()
            opening, flags = "(?:", _changed_flags(flags, found)
        elif self._peek() == "?":
            _refuse(f"({self._pattern[self._at : self._at + 3]} does not begin a group that Java knows")
        inner = self._alternatives(flags, depth + 1)
        if not self._take(")"):
            _refuse(r"a ( is not closed; write \( for the character")
        return replace(inner, text=f"{opening}{inner.text})")

    def _escape(self, flags: _Flags) -> _Atom:
        character = self._peek()
        if character in _ANCHORS:
            return _Atom(_ANCHORS[self._next()], can_repeat=False, can_be_empty=True)
        if character in _SETS:
            return _Atom(f"[{_SETS[self._next()]}]")
        return _Atom(_cased(self._escaped_character(), flags))

    def _escaped_character(self) -> str:
        code = _CODE.match(self._pattern, self._at)
        if code:
            self._at = code.end()
            number = int(code[code.lastgroup or 0], 16)
            if number > 0x10FFFF or 0xD800 <= number <= 0xDFFF:
                _refuse(f"\\{code[0]} is not a character; write the character")
            return chr(number)
        character = self._next("a backslash at the end escapes nothing")
        if character in _CONTROLS:
            return _CONTROLS[character]
        if character in ("b", "B"):
            _refuse(f"\\{character} means other characters since Java 19; write the characters that may stand there")
        if character == "k" or character in "123456789":
            _refuse(f"\\{character} is a back-reference, {_BACKTRACKS}")
        if character.isascii() and character.isalnum():
            _refuse(f"\\{character} is not supported here; write the characters that may stand there, or \\x{{h…h}}")
        return character

    def _class(self, flags: _Flags) -> str:
        members = "^" if self._take("^") else ""
        is_first = True
        while is_first or not self._take("]"):
            members += self._member(flags)
            is_first = False
        return f"[{members}]"

    def _member(self, flags: _Flags) -> str:
        r"""Read one character, one range or one set such as ``\d`` within brackets, and return it in RE2's syntax."""
        start = self._class_character()
        if start in _SETS:
            return _SETS[start]
        start = start[-1]
        if self._peek() != "-" or self._pattern[self._at + 1 : self._at + 2] in ("]", ""):
            return _character_range(start, start, flags)
        self._at += 1
        end = self._class_character()
        if end in _SETS:
            _refuse(r"a range ends with a set; write \- for the character -")
        if end[-1] < start:
            _refuse(f"the range {start}-{end[-1]} runs backwards")
        return _character_range(start, end[-1], flags)

    def _class_character(self) -> str:
        r"""Read an item within brackets. Return the letter of a set such as ``\d``, or a backslash and a character."""
        character = self._next(r"a [ is not closed; write \[ for the character")
        if character == "[":
            _refuse(r"classes within classes have no counterpart here; write \[ for the character")
        if character == "&" and self._peek() == "&":
            _refuse(r"&& within brackets has no counterpart here; write \& for the character")
        if character == "\\":
            return self._next() if self._peek() in _SETS else f"\\{self._escaped_character()}"
        return f"\\{character}"

    def _peek(self) -> str:
        return self._pattern[self._at : self._at + 1]

    def _next(self, complaint: str = "") -> str:
        if self._at >= len(self._pattern):
            _refuse(complaint)
        self._at += 1
        return self._pattern[self._at - 1]

    def _take(self, text: str) -> bool:
        is_next = self._pattern.startswith(text, self._at)
        self._at += len(text) * is_next
        return is_next


def _changed_flags(flags: _Flags, found: re.Match[str]) -> _Flags:
    on, off = found[1], found[2] or ""
    for flag in on + off:
        if flag not in "is":
            _refuse(f"the flag {flag} has no counterpart here; only i and s can be used")
    return flags.union(on).difference(off)


def _counted(found: re.Match[str]) -> str:
    least, most = int(found[1]), int(found[3] or found[1])
    if max(least, most) > _MAX_REPEAT:
        _refuse(f"{found[0]} is too many; at most {_MAX_REPEAT} repetitions are supported")
    if most < least:
        _refuse(f"{found[0]} has a maximum of {most} below its minimum of {least}")
    return f"{{{least}{found[2] or ''}{'' if found[3] is None else most}}}"


def _cased(character: str, flags: _Flags) -> str:
    """Return a pattern that matches ``character``. Under ``(?i)``, it matches an ASCII letter in both cases."""
    members = _character_range(character, character, flags)
    return members if members == _literal(character) else f"[{members}]"


def _character_range(first: str, last: str, flags: _Flags) -> str:
    """Return a range of characters for use within brackets. Under ``(?i)``, it contains ASCII letters in both cases."""
    members = _literal(first) if first == last else f"{_literal(first)}-{_literal(last)}"
    for letters in ("az", "AZ") if "i" in flags else ():
        low, high = max(first, letters[0]), min(last, letters[1])
        if low <= high:
            members += f"{low.swapcase()}-{high.swapcase()}"
    return members


def _literal(character: str) -> str:
    # The escaped form is safe within brackets and outside, and also after digits.
    if not character.isascii() or character.isalnum():
        return character
    return f"\\x{ord(character):02x}"


def _refuse(message: str) -> NoReturn:
    raise JavaRegexError(message)
