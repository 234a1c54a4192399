"""A server of ours and a real kube-apiserver on one etcd: the endpoints of `kubernetes`, addresses and node ports.

`KUBERNETES=DIR pytest tests/contract/apiserver/test_beside_kube_apiserver.py`; without that variable it is skipped, and
`tests/unit/apiserver` holds the forms to what kube-apiserver was seen to write.
"""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from nodeagent.apiserver.addresses.port_bitmap import PortBitmap
from nodeagent.lab.net.network_namespaces import inside
from tests.harness.deletions import CONFIGMAPS, CONTRARY, DELETIONS, delete
from tests.harness.effort import at_length
from tests.harness.etcd import EtcdCluster, needs_etcd
from tests.harness.etcd import running as etcd
from tests.harness.etcd_hosts import Host, Hosts, hosts
from tests.harness.kube_apiserver import Api, KubeApiserver, needs_kube_apiserver, until

pytestmark = [pytest.mark.kernel, needs_etcd, needs_kube_apiserver]
RANGES = "10.96.0.0/16,fd00:10:96::/112"
SERVICES = "/api/v1/namespaces/default/services"
TOGETHER = 4
EACH = 6
ROUND_SECONDS = 10.0
"""Between two looks of a kube-apiserver at the leases."""
REPAIR_SECONDS = 200.0
"""Within which a kube-apiserver repairs what is allocated."""
MISSED = ("is not allocated", "repairing")
"""What a kube-apiserver says of a Service whose address or port it does not find; on a machine that is busy it says so of its own, too."""
SPOILED = ("leak", "already allocated", "already assigned")


class Ours:
    """A server of this program on a host, with TLS."""

    def __init__(self, place: Path, host: Host, cluster: str) -> None:
        place.mkdir()
        self._place = place
        self._command = [
            *(*host.prefix, sys.executable, "-m", "nodeagent", "apiserver"),
            *("--storage", "etcd", "--etcd-servers", cluster, "--service-cluster-ip-range", RANGES),
            *("--listen", f"{host.address}:6443", "--data-dir", str(place / "data")),
            *("--kubeconfig-out", str(place / "kubeconfig"), "--enable-garbage-collector"),
        ]
        self.start()

    def start(self) -> None:
        kubeconfig = self._place / "kubeconfig"
        kubeconfig.unlink(missing_ok=True)
        with (self._place / "log").open("ab") as log:
            self._process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        until(kubeconfig.exists, "our server does not start")
        document = yaml.safe_load(kubeconfig.read_text())
        self.api = Api(document["clusters"][0]["cluster"]["server"], document["users"][0]["user"]["token"])
        until(self.api.is_ready, "our server is not ready")

    def end(self, number: signal.Signals = signal.SIGKILL) -> None:
        self._process.send_signal(number)
        self._process.wait()


class Both:
    """The two servers and their etcd."""

    def __init__(self, cluster: EtcdCluster, theirs: KubeApiserver, ours: Ours) -> None:
        self.cluster = cluster
        self.theirs = theirs
        self.ours = ours

    @property
    def apis(self) -> tuple[Api, Api]:
        return self.theirs.api, self.ours.api

    def endpoints(self) -> set[tuple[str, ...]]:
        """The addresses in Endpoints and in the slice, as each server shows them: one, where all agree."""
        shown = set()
        for api in self.apis:
            whole = api.get("/api/v1/namespaces/default/endpoints/kubernetes")
            shown.add(tuple(one["ip"] for subset in whole["subsets"] for one in subset["addresses"]))
            piece = api.get("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes")
            shown.add(tuple(address for one in piece["endpoints"] for address in one["addresses"]))
        return shown

    def taken(self) -> list[int]:
        """The node ports of all Services, as often as they are there; both servers show the same."""
        ours, theirs = (_node_ports(api) for api in self.apis)
        assert ours == theirs
        return ours

    def recorded(self) -> list[int]:
        """The node ports of the bitmap."""
        return sorted(PortBitmap.read(self.cluster.document("/registry/ranges/servicenodeports")))

    def until_agreed(self) -> None:
        """kube-apiserver gives a port back after it has deleted the Service."""
        until(lambda: self.recorded() == self.taken(), f"{self.recorded()} {self.taken()}")
        for api in self.apis:
            held = sorted(
                address for one in api.get("/api/v1/services")["items"] for address in one["spec"]["clusterIPs"]
            )
            until(
                lambda api=api, held=held: (
                    held  # type: ignore[misc]
                    == sorted(
                        one["metadata"]["name"] for one in api.get("/apis/networking.k8s.io/v1/ipaddresses")["items"]
                    )
                ),
                "addresses are not those of the Services",
            )


def _node_ports(api: Api) -> list[int]:
    services = api.get("/api/v1/services")["items"]
    return sorted(port["nodePort"] for one in services for port in one["spec"]["ports"] if "nodePort" in port)


def service(name: str, **spec: Any) -> dict[str, Any]:
    ports = [{"name": "a", "port": 80}, {"name": "b", "port": 81}]
    policy = {"ipFamilyPolicy": "PreferDualStack"}
    return {"metadata": {"name": name}, "spec": {"type": "NodePort", "ports": ports, **policy, **spec}}


@contextmanager
def side_by_side(tmp_path: Path, network: Hosts) -> Iterator[Both]:
    where, there, here = network.members
    with etcd(tmp_path / "etcd", 1, hosts=[where]) as cluster:
        theirs = KubeApiserver(tmp_path / "theirs", there, cluster.urls, RANGES)
        try:
            ours = Ours(tmp_path / "ours", here, cluster.urls)
            try:
                yield Both(cluster, theirs, ours)
            finally:
                ours.end()
        finally:
            theirs.end()


def test_two_kinds_of_servers_share_one_store(tmp_path: Path) -> None:
    with hosts(3) as network:
        inside(network.clients, partial(played, tmp_path, network))


def played(tmp_path: Path, network: Hosts) -> None:
    with side_by_side(tmp_path, network) as both:
        there, here = (host.address for host in network.members[1:])
        until(lambda: both.endpoints() == {(there, here)}, "not both are among the endpoints")
        hold_for_dependents(both)
        create_quietly(both)
        share_ports(both)
        stay_among_the_endpoints(both, there, here)
        leave_and_come_back(both, there, here)
        # At its start a kube-apiserver repairs what is allocated.
        before = both.recorded()
        both.theirs.end(signal.SIGTERM)
        both.theirs.start()
        both.until_agreed()
        assert both.recorded() == before
        for _ in at_length(None):
            time.sleep(REPAIR_SECONDS)
            assert both.recorded() == before == both.taken()
        assert both.theirs.said(*SPOILED) == []


def hold_for_dependents(both: Both) -> None:
    """Deletions leave the same finalizers, and the same is refused."""
    wanted = [one.left for one in DELETIONS]
    for name, api in zip(("theirs", "ours"), both.apis, strict=True):
        assert [delete(api.call, one, f"{name}-") for one in DELETIONS] == wanted
        contrary = {"name": f"{name}-both", "finalizers": ["orphan", "foregroundDeletion"]}
        status, refused = api.call("POST", CONFIGMAPS, {"metadata": contrary})
        assert (status, CONTRARY in refused["message"]) == (422, True)


def create_quietly(both: Both) -> None:
    """A kube-apiserver finds the addresses and ports of what is created here."""
    for number in range(10):
        status, _ = both.ours.api.call("POST", SERVICES, service(f"quiet-{number}"))
        assert status == 201
    both.until_agreed()
    assert both.theirs.said(*MISSED) == []
    events = both.ours.api.get("/api/v1/events")["items"]
    assert [event["message"] for event in events if "Allocated" in event["reason"]] == []
    for number in range(10):
        assert both.theirs.api.call("DELETE", f"{SERVICES}/quiet-{number}")[0] == 200


def share_ports(both: Both) -> None:
    """Created at both at once, some with a port that is asked for at both; deleted at the other."""
    with ThreadPoolExecutor(2 * TOGETHER) as pool:
        jobs = [
            (api, service(f"s{number}-{side}"))
            for number in range(TOGETHER * EACH)
            for side, api in enumerate(both.apis)
        ]
        answers = list(pool.map(lambda job: job[0].call("POST", SERVICES, job[1]), jobs))
        assert [document for status, document in answers if status != 201] == []
        taken = both.taken()
        assert len(set(taken)) == len(taken) == 2 * len(jobs)
        both.until_agreed()
        wanted = [(api, 30100 + number) for number in range(EACH) for api in both.apis]
        asked = [
            (api, service(f"port-{port}-{side}", ports=[{"port": 80, "nodePort": port}]))
            for side, (api, port) in enumerate(wanted)
        ]
        statuses = [status for status, _ in pool.map(lambda job: job[0].call("POST", SERVICES, job[1]), asked)]
        assert sorted(statuses) == [201] * EACH + [422] * EACH
        both.until_agreed()
        gone = [
            (both.apis[number % 2], job[1]["metadata"]["name"]) for number, job in enumerate(jobs[: len(jobs) // 2])
        ]
        deleted = list(pool.map(lambda job: job[0].call("DELETE", f"{SERVICES}/{job[1]}"), gone))
        assert {status for status, _ in deleted} == {200}
        both.until_agreed()


def stay_among_the_endpoints(both: Both, there: str, here: str) -> None:
    """Nobody writes what the other undoes."""
    whole = "/api/v1/namespaces/default/endpoints/kubernetes"
    before = both.ours.api.get(whole)["metadata"]["resourceVersion"]
    ends = time.monotonic() + 2 * ROUND_SECONDS + 5
    while time.monotonic() < ends:
        assert both.endpoints() == {(there, here)}
        time.sleep(0.2)
    assert both.ours.api.get(whole)["metadata"]["resourceVersion"] == before


def leave_and_come_back(both: Both, there: str, here: str) -> None:
    whole = "/api/v1/namespaces/default/endpoints/kubernetes"

    def shown() -> list[str]:
        return [one["ip"] for subset in both.theirs.api.get(whole)["subsets"] for one in subset["addresses"]]

    both.ours.end(signal.SIGTERM)
    until(lambda: shown() == [there], "a server that ended is still there")
    time.sleep(ROUND_SECONDS)
    assert shown() == [there]
    both.ours.start()
    until(lambda: both.endpoints() == {(there, here)}, "not both are among the endpoints again")
