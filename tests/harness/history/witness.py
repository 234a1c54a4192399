"""What etcd kept of a run, heard while it lasts from one watch of etcd itself: so history may be compacted behind it."""

import base64
import json
import os
import subprocess
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

from nodeagent.apiserver.addresses.port_bitmap import PortBitmap
from tests.harness.etcd import PROGRAM, EtcdCluster
from tests.harness.history.records import Fact
from tests.harness.history.rules import Holding
from tests.harness.history.truth import claims_of, fact_of

_COLLECTIONS = {"/registry/configmaps/": "configmaps", "/registry/services/specs/": "services"}
_ADDRESSES, _PORTS = "/registry/ipaddresses/", "/registry/ranges/servicenodeports"
_END = "/end"
_DEADLINE_SECONDS = 60.0


class Witness:
    """facts: of each collection in the namespace. holdings: which addresses and ports services have, and which are recorded,
    of all namespaces. position: the revision it has received."""

    def __init__(self, cluster: EtcdCluster, namespace: str) -> None:
        self._cluster = cluster
        self._namespace = namespace
        self.facts: dict[str, list[Fact]] = defaultdict(list)
        self.holdings: list[Holding] = []
        self.position = 0
        self._failure = ""
        self._ended = threading.Event()
        self._closed = False
        self._watch = self._begin()
        self._thread = threading.Thread(target=self._listen)
        self._thread.start()

    def _begin(self) -> "subprocess.Popen[bytes]":
        command = [str(PROGRAM.with_name("etcdctl")), "--endpoints", self._cluster.urls, "watch", "--prefix", "/"]
        return subprocess.Popen(
            [*command, f"--rev={self.position + 1}", "-wjson"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "ETCDCTL_API": "3"},
        )

    def finish(self) -> None:
        """Waits until all that is there now has been heard."""
        end = base64.b64encode(_END.encode()).decode()
        ends = time.monotonic() + _DEADLINE_SECONDS
        while not self._cluster.leader().call("/v3/kv/put", {"key": end, "value": end}):
            assert time.monotonic() < ends, "nothing is written"
        assert self._ended.wait(_DEADLINE_SECONDS), f"heard up to {self.position} only"
        assert not self._failure, self._failure

    def close(self) -> None:
        """Ends the watch."""
        self._closed = True
        self._watch.kill()
        self._thread.join()
        self._watch.kill()
        self._watch.wait()

    def _listen(self) -> None:
        """A member that loses its leader ends the watch; it goes on from where it was."""
        try:
            while not self._closed and not self._hear():
                self._watch.kill()
                self._watch.wait()
                time.sleep(0.1)
                self._watch = self._begin()
        except (AssertionError, KeyError, ValueError) as error:
            self._failure = repr(error)
        finally:
            self._ended.set()

    def _hear(self) -> bool:
        """Whether the end was received."""
        with self._watch.stdout or nullcontext(()) as lines:
            for line in lines:
                reported = json.loads(line)
                assert not reported.get("CompactRevision"), f"heard up to {self.position}, and then {reported}"
                for event in reported.get("Events") or []:
                    if not self._note(event):
                        return True
        return False

    def _note(self, event: dict[str, Any]) -> bool:
        """False at the end."""
        key = base64.b64decode(event["kv"]["key"]).decode()
        revision = event["kv"]["mod_revision"]
        if key == _END:
            return False
        value = base64.b64decode(event["kv"]["value"]) if event["kv"].get("value") else None
        for start, collection in _COLLECTIONS.items():
            if key.startswith(start):
                document = json.loads(value) if value is not None else None
                namespace, _, name = key.removeprefix(start).partition("/")
                if namespace == self._namespace:
                    self.facts[collection].append(fact_of(revision, name, document))
                if collection == "services":
                    self.holdings.append(Holding(revision, key, claims_of(document), recorded=False))
        if key.startswith(_ADDRESSES):
            held = frozenset({key.removeprefix(_ADDRESSES)} if value is not None else ())
            self.holdings.append(Holding(revision, key, held, recorded=True))
        elif key == _PORTS and value is not None:
            taken = frozenset(map(str, PortBitmap.read(json.loads(value))))
            self.holdings.append(Holding(revision, key, taken, recorded=True))
        self.position = max(self.position, revision)
        return True


@contextmanager
def witness(cluster: EtcdCluster, namespace: str) -> Iterator[Witness]:
    """One that hears from the first revision on. What it heard is complete after `finish`."""
    found = Witness(cluster, namespace)
    try:
        yield found
    finally:
        found.close()


def compact_behind(cluster: EtcdCluster, heard: Sequence[Witness]) -> int:
    """Forgets what is older than all have received, as an API server does that has its turn; the revision. 0: not done."""
    revision = min(one.position for one in heard)
    leader = cluster.leader()
    key, value = (base64.b64encode(text).decode() for text in (b"compact_rev_key", b"%d" % revision))
    if revision > 0 and leader.call("/v3/kv/put", {"key": key, "value": value}):
        leader.call("/v3/kv/compaction", {"revision": revision})
        return revision
    return 0
