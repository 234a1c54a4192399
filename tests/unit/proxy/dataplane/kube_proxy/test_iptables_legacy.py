"""Which tools are called, when, and with what."""

from collections.abc import Mapping, Sequence

import pytest

from nodeagent.model.addresses import Family
from nodeagent.proxy.dataplane.kube_proxy.iptables_legacy import LegacyTables
from nodeagent.proxy.dataplane.kube_proxy.leftovers import LeftoverError

SAVED = "*nat\n:OUTPUT ACCEPT [0:0]\n:KUBE-SVC-A - [0:0]\nCOMMIT\n*raw\n:KUBE-SVC-B - [0:0]\nCOMMIT\n"
LEGACY = "iptables-save v1.8.9 (legacy)\n"


class Tools:
    """Programs by name and what they print; calls are recorded."""

    def __init__(self, programs: Mapping[str, str]) -> None:
        self._programs = programs
        self.calls: list[tuple[tuple[str, ...], str]] = []

    def find(self, program: str) -> bool:
        return program in self._programs

    def run(self, argv: Sequence[str], text: str = "") -> str:
        self.calls.append((tuple(argv), text))
        return LEGACY if argv[-1] == "--version" and "nft" not in self._programs else self._programs[argv[0]]


def place(tools: Tools, *tables: str, family: Family = Family.IPV4) -> LegacyTables:
    return LegacyTables(tools, family, lambda _: frozenset(tables))


@pytest.mark.parametrize(
    "tables",
    [pytest.param((), id="no legacy tables"), pytest.param(("raw", "security"), id="only tables it never uses")],
)
def test_without_tables_no_tool_is_called_or_missed(tables: tuple[str, ...]) -> None:
    tools = Tools({})

    assert place(tools, *tables).look().leftovers == ()
    assert not tools.calls


@pytest.mark.parametrize(
    ("programs", "prefix"),
    [
        pytest.param({"iptables-legacy-save": SAVED, "iptables-save": ""}, "iptables-legacy", id="named legacy"),
        pytest.param({"iptables-save": SAVED}, "iptables", id="an older iptables, with one kind only"),
    ],
)
def test_tables_are_read_and_changed_with_the_tools_of_their_kind(programs: Mapping[str, str], prefix: str) -> None:
    tools = Tools({**programs, f"{prefix}-restore": ""})
    finding = place(tools, "nat", "raw").look()
    assert finding.leftovers == ("nat: chain KUBE-SVC-A (0 rules)",)

    finding.remove()

    argv, text = tools.calls[-1]
    assert argv == (f"{prefix}-restore", "--noflush", "--wait=30")
    assert text == "*nat\n:KUBE-SVC-A - [0:0]\n-X KUBE-SVC-A\nCOMMIT\n"


@pytest.mark.parametrize(
    "programs",
    [
        pytest.param({}, id="none"),
        pytest.param({"ip6tables-save": "ip6tables-save v1.8.10 (nf_tables)\n", "nft": ""}, id="the other kind"),
    ],
)
def test_missing_tools_are_named_with_what_they_are_needed_for(programs: Mapping[str, str]) -> None:
    with pytest.raises(LeftoverError, match=r"\(filter, nat\), but no program ip6tables-legacy-save.*install"):
        place(Tools(programs), "nat", "filter", family=Family.IPV6).look()
