"""The kernel's numbers are those of the kernel's headers (linux-libc-dev), read from their text: no compiler is needed."""

import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

HEADERS = Path("/usr/include")
FILES = {
    "ip_set": ("linux/netfilter/ipset/ip_set.h",),
    "ip_vs": ("linux/netlink.h", "linux/genetlink.h", "linux/ip_vs.h"),
    "netlink": ("linux/netlink.h", "linux/sock_diag.h", "asm-generic/socket.h"),
    "nf_tables": (
        "linux/netfilter.h",
        "linux/netfilter/nf_conntrack_tuple_common.h",
        "linux/netfilter/nf_nat.h",
        "linux/netfilter/nf_tables.h",
        "linux/netfilter/nf_tables_compat.h",
    ),
    "nfnetlink": ("linux/netlink.h", "linux/netfilter.h", "linux/netfilter/nfnetlink.h"),
    "nfnetlink_conntrack": (
        "linux/netfilter/nf_conntrack_common.h",
        "linux/netfilter/nfnetlink_conntrack.h",
    ),
    "rtnetlink": (
        "linux/if.h",
        "linux/if_addr.h",
        "linux/if_bridge.h",
        "linux/if_link.h",
        "linux/neighbour.h",
        "linux/netlink.h",
        "linux/rtnetlink.h",
    ),
    "traffic_control": ("linux/rtnetlink.h", "linux/pkt_sched.h", "linux/pkt_cls.h"),
}
ELSEWHERE = re.compile(r"NFTNL_UDATA_\w+|CTA_FILTER_F_\w+|SOL_NETLINK|INFINITY_LIFE_TIME")
"""Names of libnftnl, of a file of the kernel that is no header, of its include/linux/socket.h and include/net/addrconf.h."""
NEWER = {"NFT_TABLE_F_OWNER": 0x2, "NFT_TABLE_F_PERSIST": 0x4, "NFTA_TABLE_OWNER": 7, "NFTA_SET_COUNT": 20}
"""What the headers of Debian 12 (6.1) do not all have."""

_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
_ENUM = re.compile(r"\benum\b[^{;]*\{([^}]*)\}")
_DEFINE = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+(\S[^\n]*)$", re.MULTILINE)
_CAST = re.compile(r"\(\s*(?:unsigned\s+)?(?:int|long|__u\d+)\s*\)")
_SUFFIX = re.compile(r"\b(0[xX][0-9a-fA-F]+|\d+)[uUlL]+\b")


def read_header(text: str, known: dict[str, int]) -> dict[str, int]:
    """The constants of enums and of macros without parameters that are numbers; `known` are those of headers before."""
    text = _COMMENT.sub("", text).replace("\\\n", " ")
    found = dict(known)
    text_of_macros = dict(_DEFINE.findall(text))
    for body in _ENUM.findall(text):
        following = 0
        for entry in re.sub(r"^\s*#.*$", "", body, flags=re.MULTILINE).split(","):
            name, equals, expression = (part.strip() for part in entry.partition("="))
            if not name:
                continue
            value = evaluate(expression, found, text_of_macros) if equals else following
            if value is None:
                break
            found[name] = value
            following = value + 1
    for name, expression in text_of_macros.items():
        value = evaluate(expression, found, text_of_macros)
        if value is not None:
            found.setdefault(name, value)
    return found


def evaluate(expression: str, found: dict[str, int], macros: dict[str, str], depth: int = 0) -> int | None:
    """A constant expression of C; None when it is not understood."""
    text = _SUFFIX.sub(r"\1", _CAST.sub("", expression))
    for name in sorted(set(re.findall(r"\b[A-Za-z_]\w*\b", text))):
        value = found.get(name)
        if value is None and name in macros and depth < 5:
            value = evaluate(macros[name], found, macros, depth + 1)
        if value is None:
            return None
        text = re.sub(rf"\b{name}\b", f"({value})", text)
    if not re.fullmatch(r"[\s()0-9a-fA-FxX|&~<>+\-*]+", text):
        return None
    try:
        value = eval(text)
    except (SyntaxError, TypeError):
        return None
    return value if isinstance(value, int) else None


def constants(module: ModuleType) -> Iterator[tuple[str, int]]:
    for name, value in vars(module).items():
        if name.isupper() and isinstance(value, int):
            yield name, value


@pytest.mark.skipif(not (HEADERS / "linux/netlink.h").exists(), reason="linux-libc-dev is not installed")
@pytest.mark.parametrize("name", sorted(FILES))
def test_numbers_are_those_of_the_headers(name: str) -> None:
    said: dict[str, int] = {}
    for file in FILES[name]:
        said = read_header((HEADERS / file).read_text(), said)
    if "NLA_TYPE_MASK" in said:
        said["NLA_TYPE_MASK"] &= 0xFFFF  # spelled as what remains of a field of 16 bits
    ours = dict(constants(import_module(f"nodeagent.wire.netlink.uapi.{name}")))
    assert ours
    checked = {name: value for name, value in ours.items() if name in said}
    assert checked == {name: said[name] for name in checked}
    missing = {name: value for name, value in ours.items() if name not in said and not ELSEWHERE.fullmatch(name)}
    assert missing.items() <= NEWER.items()


def test_every_file_of_numbers_is_checked() -> None:
    directory = Path(str(import_module("nodeagent.wire.netlink.uapi").__file__)).parent
    assert {path.stem for path in directory.glob("*.py")} - {"__init__"} == set(FILES)


def test_headers_are_read_as_by_c() -> None:
    text = """
    #define FIRST 0x10 /* a comment */
    #define SHIFTED (1U << \\
                     3)
    #define NOT_A_NUMBER "text"
    #define WITH_PARAMETER(x) (x)
    enum kind {
        A,          // 0
        B = FIRST,
    #define B B
        C,
        D = -4,
        E = SHIFTED | 1,
        __LAST
    };
    #define LAST (__LAST - 1)
    enum { F = A };
    """
    read = {"A": 0, "B": 16, "C": 17, "D": -4, "E": 9, "F": 0, "__LAST": 10, "LAST": 9, "FIRST": 16, "SHIFTED": 8}
    assert read_header(text, {}) == read
