"""Node ports in kube-apiserver's form, as 1.36.2 wrote it with --storage-media-type=application/json."""

import json
from base64 import b64encode

import pytest

from nodeagent.apiserver.addresses.port_bitmap import PortBitmap
from nodeagent.apiserver.addresses.ranges import PortRange, RangeRefused

USUAL = PortRange(30000, 32767)
NONE = '{"kind":"RangeAllocation","apiVersion":"v1","metadata":{},"range":"30000-32767","data":""}'
DATA = (
    "CAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
    "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
    "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
    "AAAAAQ=="
)
THREE = '{"kind":"RangeAllocation","apiVersion":"v1","metadata":{},"range":"30000-32767","data":"DATA"}'.replace(
    "DATA", DATA
)


@pytest.mark.parametrize(("value", "ports"), [(NONE, []), (THREE, [30000, 31469, 31827])])
def test_a_bitmap_of_kube_apiserver_is_read_and_written_alike(value: str, ports: list[int]) -> None:
    document = json.loads(value)
    found = PortBitmap.read(document)
    assert list(found) == ports
    written = json.loads(PortBitmap.of(USUAL, ports).draft())
    assert written == {"metadata": {"resourceVersion": "0"}, "range": document["range"], "data": document["data"]}


def test_ports_are_taken_and_freed() -> None:
    found = PortBitmap.of(USUAL, [30000, 32767])
    assert (30000 in found, 30001 in found, 32767 in found) == (True, False, True)
    assert list(found.changed([30007], [30000])) == [30007, 32767]
    assert found.changed([30000], []) == found


def test_ports_outside_the_range_have_no_bit() -> None:
    found = PortBitmap.of(USUAL, [29999, 32768, 80])
    assert found == PortBitmap(USUAL)
    assert 29999 not in PortBitmap.of(USUAL, [30000])


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"range": "30000"},
        {"range": 7, "data": ""},
        {"range": "30000-32767", "data": "?"},
        {"range": "30000-32767", "data": 7},
    ],
)
def test_an_invalid_bitmap_is_refused(document: dict[str, object]) -> None:
    with pytest.raises(RangeRefused):
        PortBitmap.read(document)


def test_bits_beyond_the_range_are_no_ports() -> None:
    data = b64encode(b"\xff" * 4).decode()
    assert list(PortBitmap.read({"range": "30000-30001", "data": data})) == [30000, 30001]
