"""docs/metrics.md has every name that is exposed, and no other."""

import re
from pathlib import Path

from nodeagent.model.name_counts import NameCounts
from nodeagent.model.reports import NodeReport
from nodeagent.proxy.observe.metrics.agent_figures import AgentFigures, Views
from nodeagent.proxy.observe.metrics.change_figures import ChangeFigures
from nodeagent.proxy.observe.metrics.client_figures import ClientFigures
from nodeagent.proxy.observe.metrics.kube_proxy_figures import KubeProxyFigures, ProxyViews
from nodeagent.proxy.observe.metrics.metrics import map_fills
from nodeagent.proxy.observe.metrics.name_figures import NameFigures
from nodeagent.proxy.observe.metrics.service_series import ENDPOINT_NAME, NAME, OTHER_ENDPOINTS, OTHERS
from nodeagent.runtime.figures.instruments import Instrument

DOCUMENT = Path(__file__).parents[5] / "docs" / "metrics.md"
OF_THE_PROCESS = {"process_resident_memory_bytes", "process_cpu_seconds_total"}


def exposed() -> list[Instrument]:
    changes = ChangeFigures((), is_dirty=lambda _: False, wall=lambda: 0.0)
    proxy = KubeProxyFigures((), changes, ProxyViews(lambda _: (), dict), wall=lambda: 0.0)
    views = Views(lambda: None, lambda: 0, lambda: (), dict, lambda: (), lambda: (), NodeReport)
    agent = AgentFigures(views, clock=lambda: 0.0, version="")
    names = NameFigures(lambda: NameCounts(pid=1))
    return [
        *proxy.instruments(),
        *agent.instruments(),
        *ClientFigures().instruments(),
        *names.instruments(),
        *map_fills(()),
    ]


def test_every_name_is_documented() -> None:
    written = set(re.findall(r"`((?:kubeproxy|coredns|nodeagent|rest_client|process)_\w+)`", DOCUMENT.read_text()))
    assert written - OF_THE_PROCESS == {one.name for one in exposed()} | {NAME, OTHERS, ENDPOINT_NAME, OTHER_ENDPOINTS}
