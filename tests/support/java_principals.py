"""The names that Java gives to certificate subjects, and the principals that Kafka maps such names to.

The results were recorded from OpenJDK 17.0.15 and kafka-clients 3.9.1. Those of kafka-clients 4.3.1 and 4.4.0 are the
same.
``tests/end_to_end/test_principal_mapping.py`` compares the lists with Java again.
"""

from __future__ import annotations

from enum import Enum

from tests.support.certificates import Attribute

C = "2.5.4.6"
CN = "2.5.4.3"
DC = "0.9.2342.19200300.100.1.25"
EMAIL = "1.2.840.113549.1.9.1"
L = "2.5.4.7"
O = "2.5.4.10"  # noqa: E741
OU = "2.5.4.11"
SERIAL_NUMBER = "2.5.4.5"
ST = "2.5.4.8"
STREET = "2.5.4.9"
TITLE = "2.5.4.12"
UID = "0.9.2342.19200300.100.1.1"

UTF8 = 0x0C
PRINTABLE = 0x13
TELETEX = 0x14
IA5 = 0x16
GENERAL = 0x1B
BMP = 0x1E
UNIVERSAL = 0x1C
NUMERIC = 0x12
VISIBLE = 0x1A
INTEGER = 0x02
OCTETS = 0x04

SUBJECTS: list[tuple[list[list[Attribute]], str]] = [
    ([], ""),
    ([[]], ""),
    (
        [
            [(C, PRINTABLE, b"US")],
            [(O, UTF8, b"Sun Microsystems")],
            [(OU, UTF8, b"Java, Software")],
            [(CN, UTF8, b"Duke")],
        ],
        "CN=Duke,OU=Java\\, Software,O=Sun Microsystems,C=US",
    ),
    (
        [
            [(DC, IA5, b"com")],
            [(DC, IA5, b"example")],
            [(UID, UTF8, b"u1")],
            [(STREET, UTF8, b"1 Road")],
            [(L, UTF8, b"Here")],
            [(ST, UTF8, b"There")],
        ],
        "ST=There,L=Here,STREET=1 Road,UID=u1,DC=example,DC=com",
    ),
    ([[(O, UTF8, b"x")], [(CN, UTF8, b"a"), (OU, UTF8, b"b")]], "CN=a+OU=b,O=x"),
    ([[(OU, UTF8, b"b"), (EMAIL, IA5, b"a@b.c"), (CN, UTF8, b"a")]], "OU=b+1.2.840.113549.1.9.1=#16056140622e63+CN=a"),
    ([[(EMAIL, IA5, b"a@b.c")]], "1.2.840.113549.1.9.1=#16056140622e63"),
    ([[(SERIAL_NUMBER, PRINTABLE, b"0042")]], "2.5.4.5=#130430303432"),
    ([[(TITLE, UTF8, b"Dr")]], "2.5.4.12=#0c024472"),
    ([[("2.999.1", UTF8, b"x")]], "2.999.1=#0c0178"),
    ([[("1.3.6.1.4.1.42.2.11.2.1", UTF8, b"x")]], "1.3.6.1.4.1.42.2.11.2.1=#0c0178"),
    ([[(CN, UTF8, b"Zo\xc3\xab \xe4\xbd\xa0\xe5\xa5\xbd \xf0\x9f\x98\x80")]], "CN=Zoë 你好 😀"),
    ([[(CN, UTF8, b'a,b+c"d\\e<f>g;h=i#j')]], 'CN=a\\,b\\+c\\"d\\\\e\\<f\\>g\\;h\\=i\\#j'),
    ([[(CN, UTF8, b"#a")]], "CN=\\#a"),
    ([[(CN, UTF8, b" a ")]], "CN=\\ a\\ "),
    ([[(CN, UTF8, b"  ")]], "CN=\\ \\ "),
    ([[(CN, UTF8, b"\r a\r")]], "CN=\\\r\\ a\\\r"),
    ([[(CN, UTF8, b"\na\t")]], "CN=\na\t"),
    ([[(CN, UTF8, b"a\x00b")]], "CN=a\\00b"),
    ([[(CN, UTF8, b"")]], "CN="),
    ([[(CN, UTF8, b"\xc2\xa0a\xe2\x80\x83")]], "CN=\xa0a\u2003"),
    ([[(CN, UTF8, b"\x7f\x01")]], "CN=\x7f\x01"),
    ([[(CN, PRINTABLE, b"Duke")]], "CN=Duke"),
    ([[(CN, IA5, b"Duke")]], "CN=Duke"),
    ([[(CN, GENERAL, b"Duke")]], "CN=Duke"),
    ([[(CN, TELETEX, b"Duk\xe9")]], "CN=Duk�"),
    ([[(CN, TELETEX, b"Duk\xc3\xa9")]], "CN=Duké"),
    ([[(CN, BMP, b"\x00D\x00u\x00k\x00\xe9")]], "CN=\\00D\\00u\\00k\\00�"),
    (
        [[(CN, UNIVERSAL, b"\x00\x00\x00D\x00\x00\x00u\x00\x00\x00k\x00\x00\x00e")]],
        "CN=#1c1000000044000000750000006b00000065",
    ),
    ([[(CN, NUMERIC, b"42")]], "CN=#12023432"),
    ([[(CN, VISIBLE, b"Duke")]], "CN=#1a0444756b65"),
    ([[(CN, INTEGER, b"\x01")]], "CN=#020101"),
    ([[(CN, OCTETS, b"Duke")]], "CN=#040444756b65"),
    ([[(C, NUMERIC, b"US")]], "C=#12025553"),
    ([[(CN, UTF8, b"\xff")]], "CN=�"),
    ([[(CN, UTF8, b"\xe2\x82")]], "CN=�"),
    ([[(CN, UTF8, b"\xed\xa0\x80\xed\xb0\x80")]], "CN=��"),
    ([[(CN, UTF8, b"\xed\xa0")]], "CN=�"),
    ([[(CN, UTF8, b"\xf0\x9f\x98")]], "CN=�"),
    ([[(CN, UTF8, b"\xc0\x80")]], "CN=��"),
    ([[(CN, UTF8, b"\xf4\x90\x80\x80")]], "CN=����"),
    ([[(CN, UNIVERSAL, b"a" * 200)]], "CN=#1c81c8" + "61" * 200),
]


class Answer(Enum):
    """A result of mapping rules other than a principal."""

    INVALID = "the rules are refused"
    FAILS = "the rules are taken, and the connection fails with an exception of Java's"
    NO_MATCH = "the connection fails with NoMatchingRule"


# These patterns need backtracking, see docs/decisions/0025-patterns-are-matched-in-linear-time.md.
# What mapping rules in use do not have.
_NOT_SUPPORTED = ("(?<", "(?>", "(?i)", "(?s)", "*+", "(a)\\11", "\\x{", "[]", "/$2/", "$4x$1", "$2147483647")


def is_refused_here(rules: str) -> bool:
    """Return whether the proxy refuses mapping rules of ``MAPPINGS`` that Kafka accepts."""
    return any(part in rules for part in _NOT_SUPPORTED)


# The example of Kafka's documentation, "Customizing SSL User Name".
DOCUMENTED = (
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/,"
    "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L,"
    "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L,DEFAULT"
)
MAPPINGS: list[tuple[str, str, str | Answer]] = [
    (DOCUMENTED, "CN=serviceuser,OU=ServiceUsers,O=Unknown,L=Unknown,ST=Unknown,C=Unknown", "serviceuser"),
    (DOCUMENTED, "CN=adminUser,OU=Admin,O=Unknown,L=Unknown,ST=Unknown,C=Unknown", "adminuser@admin"),
    (DOCUMENTED, "CN=broker1.example.com", "broker1.example.com"),
    (DOCUMENTED, "OU=Nobody", "OU=Nobody"),
    (
        "DEFAULT",
        "CN=serviceuser,OU=ServiceUsers,O=Unknown,L=Unknown,ST=Unknown,C=Unknown",
        "CN=serviceuser,OU=ServiceUsers,O=Unknown,L=Unknown,ST=Unknown,C=Unknown",
    ),
    ("RULE:^CN=(.*?),.*$/$1/L, DEFAULT", "CN=Duke,OU=X", "duke"),
    ("RULE:^CN=(.*?),.*$/$1/U", "CN=straße,OU=X", "STRASSE"),
    ("RULE:^CN=(.*?),.*$/$1/L", "OU=X", Answer.NO_MATCH),
    ("", "CN=serviceuser,OU=ServiceUsers,O=Unknown,L=Unknown,ST=Unknown,C=Unknown", Answer.NO_MATCH),
    (" , ,,", "a", Answer.NO_MATCH),
    ("a b", "a", Answer.INVALID),
    ("default", "a", Answer.INVALID),
    ("rule:a/b/", "a", Answer.INVALID),
    ("DEFAULTx", "a", Answer.INVALID),
    ("DEFAULT DEFAULT", "a", Answer.INVALID),
    ("  DEFAULT  ", "a", "a"),
    ("RULE:a/b", "a", Answer.INVALID),
    ("RULE:a/b/LU", "a", Answer.INVALID),
    ("RULE:a/b/l", "a", Answer.INVALID),
    ("RULE:a/b/L x, DEFAULT", "a", Answer.INVALID),
    ("RULE:a/b/ RULE:c/d/", "c", Answer.INVALID),
    ("RULE://x/", "a", Answer.INVALID),
    ("RULE:a//", "a", ""),
    ("RULE://", "", ""),
    ("RULE:a,b/b,c/,DEFAULT", "a,b", "b,c"),
    ("RULE:a,b/b,c/,DEFAULT", "a", "a"),
    ("RULE:CN=(.*)\\/(.*)/$2\\/$1/", "CN=a/b", "b/a"),
    ("RULE:a\\,b/x/", "a,b", "x"),
    ("RULE:a\\\\/x/", "a\\", "x"),
    ("RULE:(.*)/\\", "a", Answer.INVALID),
    ("RULE:a/b/L\t,\tRULE:c/d/U , DEFAULT", "c", "D"),
    ("RULE:a#b/#/", "a#b", "#"),
    ("DEFAULT,RULE:(/x/", "q", Answer.INVALID),
    ("RULE:a/x/,RULE:a/y/", "a", "x"),
    ("RULE:A/x/,RULE:a/y/", "a", "y"),
    ("RULE:b/x/", "ab", Answer.NO_MATCH),
    ("RULE:.*/x/", "abc", "xx"),
    ("RULE:^.*$/x/", "abc", "x"),
    ("RULE:CN=(.*?)/$1/", "CN=foo", "foo"),
    ("RULE:x*/y/", "xx", "yy"),
    ("RULE:|.*/x/", "aa", "xaxax"),
    ("RULE:a|ab/x/", "ab", "xb"),
    ("RULE:(.*)/$1$1/", "ab", "abab"),
    ("RULE:^(.*)$/$0-$00/", "ab", "ab-ab"),
    ("RULE:^(.*)$/$12/", "ab", "ab2"),
    ("RULE:^(.*)$/$2/", "ab", "$2"),
    ("RULE:^(.*)$/$4$5/", "ab", Answer.FAILS),
    ("RULE:^(.*)$/$4x$1/", "ab", "$4xab"),
    ("RULE:^(.*)$/$1$4x$5/", "ab", Answer.FAILS),
    ("RULE:^.*$/$1/", "ab", Answer.FAILS),
    ("RULE:^.*$/$0/", "ab", "ab"),
    ("RULE:^(.*)$/$/", "ab", Answer.FAILS),
    ("RULE:^(.*)$/$a/", "ab", Answer.FAILS),
    ("RULE:^(.*)$/\\$1/", "ab", "$1"),
    ("RULE:^(.*)$/x\\yz/", "ab", "xyz"),
    ("RULE:^(.*)$/$2147483648/", "ab", Answer.FAILS),
    ("RULE:^(.*)$/$0000000000000000001/", "ab", "ab"),
    ("RULE:^(.*)$/$2147483647/", "ab", "$2147483647"),
    ("RULE:^(a)?b$/[$1]/", "b", "[]"),
    ("RULE:^(?<user>.*)$/${user}/U", "ab", "AB"),
    ("RULE:^(?<user>.*)$/${who}/", "ab", Answer.FAILS),
    ("RULE:^(.*)$/${1}/", "ab", Answer.FAILS),
    ("RULE:^(.*)$/${user/", "ab", Answer.FAILS),
    ("RULE:(a)(a)(a)(a)(a)(a)(a)(a)(a)(a)(b)/$11$10$1/", "aaaaaaaaaab", "baa"),
    ("RULE:(a)(a)(a)(a)(a)(a)(a)(a)(a)(a)(b)/$110/", "aaaaaaaaaab", "b0"),
    ("RULE:^(.*)$/$1/L", "ΑΣ İ", "ας i̇"),
    ("RULE:^(.*)$/$1/U", "ŉ ß ǆ ﬁ", "ʼN SS Ǆ FI"),
    ("RULE:(?i)cn=(.*)/$1/", "CN=É", "É"),
    ("RULE:(?i)CN=é/x/", "CN=É", Answer.NO_MATCH),
    ("RULE:\\w+/x/", "é", Answer.NO_MATCH),
    ("RULE:\\d/x/", "٣", Answer.NO_MATCH),
    ("RULE:a./x/", "a\u2028", Answer.NO_MATCH),
    ("RULE:a$\\s/x/", "a\n", "x"),
    ("RULE:a$/x/", "a\r\n", Answer.NO_MATCH),
    ("RULE:(?s)a./x/", "a\u2028", "x"),
    ("RULE:[]a]+/x/", "]a", "x"),
    ("RULE:[a-c-e]+/x/", "-e", "x"),
    ("RULE:(a)\\11/x/", "aa1", "x"),
    ("RULE:(?>a|ab)c/x/", "abc", Answer.NO_MATCH),
    ("RULE:a*+a/x/", "aaa", Answer.NO_MATCH),
    ("RULE:\\x{1F600}\\u00e9/x/", "😀é", "x"),
    ("RULE:{/x/", "{", Answer.INVALID),
    ("RULE:a**/x/", "a", Answer.INVALID),
    ("RULE:\\y/x/", "y", Answer.INVALID),
    ("RULE:[a/x/", "a", Answer.INVALID),
    ("RULE:a)/x/", "a", Answer.INVALID),
    ("RULE:[z-a]/x/", "a", Answer.INVALID),
    ("RULE:*/x/", "*", Answer.INVALID),
    ("RULE:a{2,1}/x/", "a", Answer.INVALID),
    ("RULE:(?<=a*)b/x/", "b", "x"),
]
