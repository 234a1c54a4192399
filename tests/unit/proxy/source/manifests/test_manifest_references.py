"""Names in manifests that lead nowhere."""

from collections.abc import Iterable

import pytest

from nodeagent.proxy.source.manifests.manifest_world import ManifestFile, merge
from nodeagent.proxy.source.manifests.manifests import parse_manifest

WEB = """
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {clusterIP: 10.96.0.1, ports: [{name: http, port: 80}, {name: dns, port: 53, protocol: UDP}]}
"""
ALONE = """
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {clusterIP: 10.96.0.1, ports: [{port: 80}]}
"""
BOTH = "[{name: http, port: 8080}, {name: dns, port: 53, protocol: UDP}]"
POD = "[{addresses: [10.244.0.1]}]"


def slice_of(service: str, ports: str = BOTH, endpoints: str = POD, name: str = "web-1") -> str:
    label = f"labels: {{kubernetes.io/service-name: {service}}}" if service else "labels: {}"
    return f"""
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: {name}, {label}}}
addressType: IPv4
ports: {ports}
endpoints: {endpoints}
"""


def endpoints_of(service: str, ports: str = BOTH, metadata: str = "") -> str:
    return f"""
apiVersion: v1
kind: Endpoints
metadata: {{name: {service}{metadata}}}
subsets: [{{addresses: [{{ip: 10.244.0.1}}], ports: {ports}}}]
"""


def problems(*documents: str) -> list[tuple[str, str, str]]:
    """As of one file for each document."""
    files: Iterable[ManifestFile] = (
        ManifestFile(f"{number}.yaml", parse_manifest("x.yaml", text.encode())) for number, text in enumerate(documents)
    )
    return [(problem.subject, problem.reason, problem.detail) for problem in merge(files, "here").problems]


@pytest.mark.parametrize(
    "documents",
    [
        pytest.param((WEB, slice_of("web")), id="all names meet"),
        pytest.param((ALONE, slice_of("web", "[{port: 8080}]")), id="no names at all"),
        pytest.param((ALONE, slice_of("web", '[{name: "", port: 8080}]')), id="an empty name is no name"),
        pytest.param((WEB,), id="a Service without endpoints"),
        pytest.param((WEB, slice_of("web", "null", "[]")), id="a slice of a Service that has no pods yet"),
        pytest.param(
            (WEB, slice_of("web", BOTH[:26] + "]"), slice_of("web", f"[{BOTH[27:]}", name="b")), id="two slices"
        ),
        pytest.param((WEB, endpoints_of("web")), id="Endpoints"),
        pytest.param(
            (endpoints_of("x", metadata=", annotations: {control-plane.alpha.kubernetes.io/leader: x}"),), id="a lock"
        ),
    ],
)
def test_nothing_dangles(documents: tuple[str, ...]) -> None:
    assert problems(*documents) == []


@pytest.mark.parametrize(
    ("documents", "problem"),
    [
        pytest.param(
            (WEB, slice_of("wbe")),
            (
                "file 1.yaml:2",
                "UnknownService",
                "EndpointSlice default/web-1: there is no Service default/wbe; did you mean web?",
            ),
            id="a slice without its Service",
        ),
        pytest.param(
            (WEB, slice_of("")),
            (
                "file 1.yaml:2",
                "NoServiceName",
                "EndpointSlice default/web-1: no label kubernetes.io/service-name: it belongs to no Service",
            ),
            id="a slice without the label",
        ),
        pytest.param(
            (WEB, endpoints_of("web2")),
            (
                "file 1.yaml:2",
                "UnknownService",
                "Endpoints default/web2: there is no Service default/web2; did you mean web?",
            ),
            id="Endpoints without their Service",
        ),
        pytest.param(
            (WEB, slice_of("web", "[{name: htpp, port: 8080}]")),
            (
                "file 1.yaml:2",
                "UnknownPortName",
                "EndpointSlice default/web-1: Service default/web has no port 'htpp'/TCP; did you mean http?",
            ),
            id="a port name that the Service has not",
        ),
        pytest.param(
            (WEB, slice_of("web", BOTH.replace("UDP", "TCP"))),
            (
                "file 1.yaml:2",
                "UnknownPortName",
                "EndpointSlice default/web-1: Service default/web has no port 'dns'/TCP; there are 'dns'/UDP, 'http'/TCP",
            ),
            id="the same name with another protocol",
        ),
        pytest.param(
            (ALONE, slice_of("web", "[{name: http, port: 8080}]")),
            (
                "file 1.yaml:2",
                "UnknownPortName",
                "EndpointSlice default/web-1: Service default/web has no port 'http'/TCP; there are without a name/TCP",
            ),
            id="a name where the Service has none",
        ),
        pytest.param(
            (WEB, slice_of("web", "[{name: http, port: 8080}]")),
            (
                "file 0.yaml:2",
                "UnknownPortName",
                "Service default/web: no endpoint of it has a port 'dns'/UDP; there are 'http'/TCP",
            ),
            id="a port of the Service that no endpoint has",
        ),
    ],
)
def test_references_to_missing_objects(documents: tuple[str, ...], problem: tuple[str, str, str]) -> None:
    assert problems(*documents) == [problem]
