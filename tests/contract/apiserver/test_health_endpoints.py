"""/livez, /readyz, /healthz and /metrics/slis, as monitoring of kube-apiserver asks for them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from nodeagent.apiserver.api.pki import GROUPS, add_user


def lines(api: Any, path: str) -> list[str]:
    answer = api.call("GET", path)
    assert answer.status == 200, answer.body
    return str(answer.body.decode()).splitlines()


def test_verbose_names_each_check_with_its_result(api: Any) -> None:
    assert lines(api, "/livez?verbose=1") == ["[+]ping ok", "livez check passed"]
    every = ["[+]ping ok", "[+]store ok", "[+]store-space ok", "[+]etcd ok"]
    assert lines(api, "/readyz?verbose") == [*every, "readyz check passed"]
    assert lines(api, "/healthz?verbose") == [*every, "healthz check passed"]


def test_checks_are_left_out_as_asked(api: Any) -> None:
    found = lines(api, "/readyz?verbose&exclude=etcd&exclude=store&exclude=other")
    assert found[1:4] == ["[+]store excluded: ok", "[+]store-space ok", "[+]etcd excluded: ok"]
    assert found[4] == 'warn: some health checks cannot be excluded: no matches for "other"'


def test_results_are_counted_for_who_may_scrape(start: Callable[..., Any], tmp_path: Path) -> None:
    api = start()
    for _ in range(3):
        assert api.call("GET", "/readyz").status == 200
    families = text_string_to_metric_families(api.call("GET", "/metrics/slis").body.decode())
    samples = {(one.name, *sorted(one.labels.items())): one.value for family in families for one in family.samples}
    of_readyz = (("name", "store"), ("type", "readyz"))
    assert samples["kubernetes_healthcheck", *of_readyz] == 1
    assert samples["kubernetes_healthchecks_total", of_readyz[0], ("status", "success"), of_readyz[1]] == 3
    tokens = tmp_path / "pki" / "tokens.csv"
    reader, agent = (add_user(tokens, role, GROUPS[role]) for role in ("reader", "agent"))
    codes = [api.call("GET", "/metrics/slis", token=token).status for token in (reader, agent, None)]
    assert codes == [200, 403, 401]
