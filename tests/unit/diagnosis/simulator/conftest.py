"""Tables of a few rules, and packets for them."""

from collections.abc import Callable, Mapping

import pytest

from nodeagent.diagnosis.simulator.interpreter import Interpreter
from nodeagent.model.addresses import Family
from nodeagent.proxy.dataplane.image.image import TableImage
from nodeagent.proxy.dataplane.program.chain import Chain, Hook, HookNumber, Program
from nodeagent.proxy.dataplane.program.schema import SetSpec
from nodeagent.wire.netlink.nf_tables.expressions import Rule

BuildTable = Callable[..., Interpreter]


@pytest.fixture
def table() -> BuildTable:
    """table(*rules of a prerouting chain, more chains by name, sets and their elements, …) → an Interpreter."""

    def build(
        *rules: Rule,
        family: Family = Family.IPV4,
        hook: int = HookNumber.PREROUTING,
        chains: Mapping[str, tuple[Rule, ...]] | None = None,
        base_chains: tuple[Chain, ...] = (),
        specs: tuple[SetSpec, ...] = (),
        image: TableImage | None = None,
        verdicts: dict[str, dict[bytes, str]] | None = None,
        local: tuple[str, ...] = (),
        bridges: Mapping[str, tuple[str, ...]] | None = None,
        at_interface: Mapping[str, list[str]] | None = None,
    ) -> Interpreter:
        inner = tuple(Chain(name, held) for name, held in (chains or {}).items())
        program = Program(family, (Chain("base", rules, Hook(hook, -100)), *base_chains, *inner), verdicts or {})
        by_name = {spec.name: spec for spec in specs}
        return Interpreter(program, by_name, image or {}, local, bridges=bridges, at_interface=at_interface)

    return build
