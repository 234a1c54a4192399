"""Dashboards and rules that were made for kube-proxy show an agent: asked of what a running one of a lab exposes, by promtool."""

import json
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from nodeagent.lab.registration import now

ROOT = Path(__file__).parents[2]
ASKED = yaml.safe_load((ROOT / "tests" / "contract" / "recordings" / "kube-prometheus.yaml").read_text())
PROMTOOL = ROOT / ".tools" / "prometheus" / "promtool"
KUBECTL = ROOT / ".tools" / "kubectl-1.32" / "kubectl"
PROGRAMMED = re.compile(r'^kubeproxy_network_programming_duration_seconds_count{ip_family="IPv4"} [1-9]', re.MULTILINE)
SAMPLE = re.compile(r"([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)")
JOB, INSTANCE = ASKED["job"], "node-1:10249"
MINUTES = 10
PANELS = {one["title"]: one for one in ASKED["panels"]}
COUNTS = ("_total", "_count", "_sum", "_bucket")
Series = dict[str, str]


@pytest.fixture(scope="module")
def scraped(shared: Any, eventually: Callable[..., None]) -> str:
    """What the agent of a node exposes, once it has programmed an endpoint that became ready after its start."""
    kubectl = [KUBECTL, "--kubeconfig", shared.do("kubeconfig").strip()]
    # Times of transitions are whole seconds, and the agent leaves out changes from before its start.
    second_of_start = now()
    eventually(lambda: now() > second_of_start)
    for status in ("False", "True"):
        ready = {"type": "Ready", "status": status, "lastTransitionTime": now()}
        patch = json.dumps({"status": {"conditions": [ready]}})
        words = ["patch", "pod", "echo-1-1", "--subresource", "status", "--patch", patch]
        subprocess.run([*kubectl, *words], check=True, capture_output=True, timeout=60)
        wanted = "false" if status == "False" else "true"
        shown = [
            "get",
            "endpointslices",
            "-o",
            "jsonpath={.items[*].endpoints[?(@.targetRef.name=='echo-1-1')].conditions.ready}",
        ]
        eventually(partial(_prints, [*kubectl, *shown], {wanted}))

    def expose() -> str:
        return str(shared.do("exec", "node-1", "--", "curl", "-sS", "http://127.0.0.1:10249/metrics"))

    eventually(lambda: PROGRAMMED.search(expose()) is not None)
    return expose()


def _prints(command: list[Any], words: set[str]) -> bool:
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    return set(done.stdout.split()) == words


def series_of(text: str, job: str = JOB) -> Series:
    """As Prometheus would have them by now. Counts began with 0 when the agent did."""
    found = {name_of("up", "", job): f"1x{MINUTES}"}
    for line in text.splitlines():
        sample = SAMPLE.fullmatch(line)
        if line.startswith("#") or sample is None:
            continue
        name, labels, value = sample.groups()
        begins = f"0 {value}x{MINUTES}" if name.endswith(COUNTS) else f"{value}x{MINUTES}"
        found[name_of(name, labels or "", job)] = begins
    return found


def name_of(name: str, labels: str, job: str) -> str:
    own = f'job="{job}",instance="{INSTANCE}"'
    return f"{name}{{{labels.rstrip(',')},{own}}}" if labels else f"{name}{{{own}}}"


def expression_of(panel: Mapping[str, Any]) -> str:
    """What a dashboard asks for a panel."""
    where = ",".join(filter(None, (f'job="{JOB}"', panel.get("labels", ""))))
    if "rate" in panel:
        return f"sum(rate({panel['rate']}{{{where}}}[5m]))"
    if "quantile" in panel:
        by = ", ".join((*panel["by"], "le"))
        return f"histogram_quantile(0.99, sum by ({by}) (rate({panel['quantile']}{{{where}}}[5m])))"
    return f"{panel['value']}{{{where}}}"


def expression_of_alert(alert: Mapping[str, Any]) -> str:
    where = f'{{job="{JOB}"}}'
    if "absent" in alert:
        return f"absent({alert['absent']}{where} == 1)"
    if "zero" in alert:
        return f"{alert['zero']}{where} == 0"
    if "errors" in alert:
        name, by = alert["errors"], "sum by (instance, job)"
        return f"{by} (rate({name}{{{alert['part']}}}[5m])) / {by} (rate({name}[5m])) > {alert['above']}"
    return f"count(count by ({alert['label']}) ({alert['versions']})) > 1"


def answers(place: Path, series: Series, expression: str) -> bool:
    """Whether a query gives a number, a few minutes after the agent's start."""
    test = {
        "rule_files": [],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [{"series": name, "values": values} for name, values in series.items()],
                "promql_expr_test": [
                    {
                        "expr": f"count(({expression}) >= 0) or vector(0)",
                        "eval_time": "4m",
                        "exp_samples": [{"labels": "{}", "value": 0}],
                    }
                ],
            }
        ],
    }
    file = place / "query.yaml"
    file.write_text(yaml.safe_dump(test, width=1 << 20))
    done = subprocess.run([PROMTOOL, "test", "rules", file], capture_output=True, text=True, check=False)
    assert "expr:" in done.stdout + done.stderr or done.returncode == 0, done.stdout + done.stderr
    return done.returncode != 0


@pytest.fixture
def query(tmp_path: Path) -> Callable[[Series, str], bool]:
    return lambda series, expression: answers(tmp_path, series, expression)


@pytest.mark.parametrize("title", PANELS)
def test_a_panel_shows_something(scraped: str, query: Callable[[Series, str], bool], title: str) -> None:
    expression = expression_of(PANELS[title])
    shown = query(series_of(scraped), expression)
    assert shown is ("empty" not in PANELS[title]), expression
    assert not query(series_of(scraped, job="another"), expression), "the control: it is the job that is shown"


def test_the_instances_can_be_chosen(scraped: str) -> None:
    for name in ASKED["variables"]:
        assert any(one.startswith(f"{name}{{") for one in series_of(scraped))


@pytest.mark.parametrize("name", ASKED["alerts"])
def test_no_alert_fires_for_an_agent_that_is_well(
    scraped: str, query: Callable[[Series, str], bool], name: str
) -> None:
    series = series_of(scraped) | {VERSION.format("v1.36.2", "kubelet"): f"1x{MINUTES}"}
    assert not query(series, expression_of_alert(ASKED["alerts"][name]))


VERSION = 'kubernetes_build_info{{git_version="{}",job="{}"}}'
ILL: Mapping[str, Callable[[Series], Series]] = {
    "KubeProxyDown": lambda series: {name: one for name, one in series.items() if not name.startswith("up{")},
    "KubeProxyInstanceUnreachable": lambda series: series | {name_of("up", "", JOB): f"0x{MINUTES}"},
    "KubeClientErrors": lambda series: (
        series | {name_of("rest_client_requests_total", 'code="500"', JOB): f"0 9x{MINUTES}"}
    ),
    "KubeVersionMismatch": lambda series: (
        series | {VERSION.format("v1.36.2", "kubelet"): f"1x{MINUTES}", VERSION.format("v0.1.0", JOB): f"1x{MINUTES}"}
    ),
}
"""What it takes for each alert; of the last an agent that would name its own version as one of Kubernetes."""


@pytest.mark.parametrize("name", ILL)
def test_an_alert_fires_when_it_should(scraped: str, query: Callable[[Series, str], bool], name: str) -> None:
    """The control."""
    assert query(ILL[name](series_of(scraped)), expression_of_alert(ASKED["alerts"][name]))


def test_each_alert_has_its_control() -> None:
    assert ILL.keys() == ASKED["alerts"].keys()


def test_the_job_that_the_document_describes_is_the_one_that_is_asked() -> None:
    """And keeps what is asked."""
    document = (ROOT / "docs" / "observability" / "README.md").read_text()
    blocks = list(_yaml_blocks(document))
    job = next(one for block in blocks for one in block.get("scrape_configs", ()) if one["job_name"] == JOB)
    kept = re.compile(next(one["regex"] for one in job["metric_relabel_configs"] if one["action"] == "keep"))
    for panel in ASKED["panels"]:
        name = panel.get("rate") or panel.get("quantile") or panel.get("value")
        assert name == "up" or "empty" in panel or kept.fullmatch(name), name
    assert not kept.fullmatch("nodeagent_build_info"), "those would count twice"


def _yaml_blocks(text: str) -> Iterator[dict[str, Any]]:
    for block in re.findall(r"(?:^    .*\n)+", text, re.MULTILINE):
        found = yaml.safe_load(block)
        if isinstance(found, dict):
            yield found
