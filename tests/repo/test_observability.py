"""Dashboard and alerts ask for what is there, in a language that Prometheus reads."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
PLACE = ROOT / "docs" / "observability"
PROMTOOL = ROOT / ".tools" / "prometheus" / "promtool"
NAMES = re.compile(r"\b(?:kubeproxy|nodeagent|rest_client|process)_\w+")
SUFFIXES = ("_bucket", "_count", "_sum")


def promtool(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    assert PROMTOOL.exists(), f"{PROMTOOL} is missing: make {PROMTOOL.relative_to(ROOT)}"
    return subprocess.run([PROMTOOL, *arguments], capture_output=True, text=True, cwd=PLACE, check=False)


def expressions_of_dashboard() -> list[str]:
    def walk(node: object) -> Iterator[str]:
        if isinstance(node, dict):
            yield from (value for key, value in node.items() if key == "expr")
            for value in node.values():
                yield from walk(value)
        elif isinstance(node, list):
            for value in node:
                yield from walk(value)

    return list(walk(json.loads((PLACE / "dashboard.json").read_text())))


def expressions_of_alerts() -> list[str]:
    rules = yaml.safe_load((PLACE / "alerts.yaml").read_text())
    return [rule["expr"] for group in rules["groups"] for rule in group["rules"]]


def test_the_alerts_are_rules() -> None:
    done = promtool("check", "rules", "alerts.yaml")
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_alert_fires_with_its_fault_and_not_before() -> None:
    done = promtool("test", "rules", "alerts_test.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    tested = (PLACE / "alerts_test.yaml").read_text()
    rules = yaml.safe_load((PLACE / "alerts.yaml").read_text())
    assert all(f'alertname="{rule["alert"]}"' in tested for group in rules["groups"] for rule in group["rules"])


def test_each_alert_leads_to_a_paragraph() -> None:
    for group in yaml.safe_load((PLACE / "alerts.yaml").read_text())["groups"]:
        for rule in group["rules"]:
            file, _, anchor = rule["annotations"].get("runbook_url", "").partition("#")
            titles = [
                line.lstrip("# ") for line in (PLACE.parents[1] / file).read_text().splitlines() if line.startswith("#")
            ]
            anchors = {re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-") for title in titles}
            assert anchor in anchors, (rule["alert"], anchor)


def test_an_alert_that_never_fires_is_seen(tmp_path: Path) -> None:
    text = (PLACE / "alerts.yaml").read_text()
    (tmp_path / "alerts.yaml").write_text(text.replace('up{job="nodeagent"} == 0', 'up{job="nodeagent"} == 7'))
    test = tmp_path / "alerts_test.yaml"
    test.write_text((PLACE / "alerts_test.yaml").read_text())
    assert promtool("test", "rules", test).returncode != 0


def test_the_dashboards_expressions_can_be_read(tmp_path: Path) -> None:
    rules = [
        {"record": f"panel:{number}", "expr": expression.replace("$__rate_interval", "5m")}
        for number, expression in enumerate(expressions_of_dashboard())
    ]
    assert len(rules) > 20
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    done = promtool("check", "rules", file)
    assert done.returncode == 0, done.stdout + done.stderr


def test_metrics_of_alerts_and_dashboards_are_exposed() -> None:
    documented = set(NAMES.findall((ROOT / "docs" / "metrics.md").read_text()))
    for expression in (*expressions_of_dashboard(), *expressions_of_alerts()):
        for name in NAMES.findall(expression):
            bare = next((name.removesuffix(suffix) for suffix in SUFFIXES if name.endswith(suffix)), name)
            assert {name, bare} & documented, f"{name} in {expression}"
