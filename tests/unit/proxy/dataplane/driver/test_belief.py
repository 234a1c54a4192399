"""Whether a table is still as believed, judged from an outline of it."""

from dataclasses import replace

import pytest

from nodeagent.model.addresses import Family, Protocol
from nodeagent.proxy.dataplane.driver.belief import Belief, Contents, outline_deviation
from nodeagent.proxy.dataplane.image.image import TableImage, empty_image, frontend_key, packed_class
from nodeagent.proxy.dataplane.program import schema
from nodeagent.proxy.dataplane.program.chain import ProgramOptions
from nodeagent.proxy.dataplane.program.program import build_program, verdict_elements
from nodeagent.wire.netlink.framing import string
from nodeagent.wire.netlink.nf_tables.expressions import OneOf, Rule
from nodeagent.wire.netlink.nf_tables.ruleset_objects import KernelExpression, KernelRule, SetHeader, TableHeader

FAMILY = Family.IPV4
OPTIONS = ProgramOptions()
SPECS = {spec.name: spec for spec in schema.set_specs(counters=OPTIONS.counters)}
KEY = frontend_key("10.96.0.10", Protocol.TCP, 80)


def served() -> TableImage:
    image = empty_image(schema.DATA_SETS)
    image[schema.FRONTENDS][KEY] = packed_class(1)
    return image


def in_kernel(image: TableImage, *, counted: bool) -> Contents:
    """An outline, as of a kernel that tells how many elements a set has, or of one that does not."""
    program = build_program(FAMILY, OPTIONS, set(), set())
    contents = Contents(
        TableHeader(flags=0, comment=schema.COMMENT_PREFIX, handle=7),
        hooks={chain.name: chain.hook for chain in program.chains},
        rules={chain.name: [held(chain.name, rule) for rule in chain.rules] for chain in program.chains},
    )
    sizes = {name: len(elements) for name, elements in (image | verdict_elements(set(), set())).items()}
    for name, spec in SPECS.items():
        contents.sets[name] = SetHeader(
            name,
            spec.flags,
            spec.key_type(FAMILY),
            spec.key_length(FAMILY),
            spec.data_type(FAMILY),
            spec.data_length(FAMILY),
            spec.counter,
            sizes.get(name, 0) if counted else None,
        )
    if not counted:
        contents.image = image
        contents.verdicts = verdict_elements(set(), set())
    return contents


def held(chain: str, rule: Rule) -> KernelRule:
    return KernelRule(
        chain,
        tuple(
            KernelExpression(one.name, string(1, "__set0") if isinstance(one, OneOf) else one.encode()) for one in rule
        ),
    )


def believed(image: TableImage) -> Belief:
    return Belief(image, exists=True, usable=True, program_right=True, handle=7)


def kind_of(outline: Contents) -> str | None:
    """Of what differs from what is served."""
    found = outline_deviation(outline, SPECS, FAMILY, OPTIONS, believed(served()))
    return None if found is None else found.kind


COUNTED = pytest.mark.parametrize("counted", [True, False], ids=["counted", "not counted"])


@COUNTED
def test_a_table_as_believed_is_undisturbed(*, counted: bool) -> None:
    assert outline_deviation(in_kernel(served(), counted=counted), SPECS, FAMILY, OPTIONS, believed(served())) is None


@COUNTED
def test_a_missing_element_is_noticed(*, counted: bool) -> None:
    outline = in_kernel(empty_image(schema.DATA_SETS), counted=counted)

    assert kind_of(outline) == "elements"


def test_a_verdict_less_is_noticed_where_the_kernel_does_not_count() -> None:
    outline = in_kernel(served(), counted=False)
    outline.verdicts = outline.verdicts | {schema.DISPATCH: {}}

    assert kind_of(outline) == "elements"


def test_a_set_that_was_neither_counted_nor_read_proves_nothing() -> None:
    outline = in_kernel(served(), counted=False)
    outline.image = {}

    assert kind_of(outline) == "elements"


def test_a_recreated_table_is_noticed() -> None:
    outline = in_kernel(served(), counted=True)
    outline.header = replace(outline.header, handle=8)

    assert kind_of(outline) == "table"
