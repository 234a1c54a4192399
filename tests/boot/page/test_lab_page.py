"""The page of a lab in a headless Chromium: looked at, and a node cut by mouse and by keyboard."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.boot.page.browser import Browser
from tests.boot.page.test_status_page import picture
from tests.harness.warm_start import WarmLauncher
from tests.lab.conftest import ROOT, Bench, bench_of_its_own

KUBECTL = ROOT / ".tools" / "kubectl-1.32" / "kubectl"
LOADED = "typeof last !== 'undefined' && last && last.nodes.length === 2"


@pytest.fixture(scope="module")
def bench(network_namespaces: None, warm_launcher: WarmLauncher) -> Iterator[Bench]:
    with bench_of_its_own(warm_launcher) as found:
        found.do("up", "--nodes", "2", "--pods", "1", "--no-dns")
        yield found


@pytest.fixture(scope="module")
def lab_browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    browser = Browser("", tmp_path_factory.mktemp("lab-browser") / "profile")
    yield browser
    browser.close()


@pytest.fixture
def page(lab_browser: Browser, bench: Bench) -> Browser:
    lab_browser.open(bench.directory().read_page())
    lab_browser.wait(LOADED)
    return lab_browser


def button(node: str) -> str:
    return f"cards.get({node!r}).button"


def start_load(page: Browser) -> None:
    """That of the page; it may have outlived a page that was left for this one."""
    page.value("last.loading || $('load').click()")
    page.wait("last.loading && last.talks.some(one => one.answered > 0)")


def test_the_page_shows_the_nodes_and_who_talks_to_whom(page: Browser) -> None:
    assert page.value("document.querySelectorAll('.node').length") == 2
    page.wait("$('state').innerText === 'well'")
    start_load(page)
    page.wait("document.querySelectorAll('#picture .stream').length >= 8")
    shown = page.value("$('picture').textContent")
    for name in ("caller-1", "caller-2", "node-1", "client", "echo-1-1", "echo-2-1"):
        assert name in shown
    page.wait("last.tracked.some(one => one.client === 'caller-1')")
    page.wait("$('services').innerText.includes('default/echo')")
    page.wait("$('load').innerText === 'Stop load'")
    assert page.errors == []


def test_a_click_cuts_a_node_and_another_one_mends_it(page: Browser, bench: Bench) -> None:
    start_load(page)
    page.value(f"{button('node-2')}.click()")
    page.wait("$('state').innerText === 'link of node-2 cut'")
    assert "broken on purpose: link of node-2 cut" in bench.do("status")
    page.wait("last.points.at(-1)[2] > 0")
    page.wait("document.querySelectorAll('#picture .failing').length > 0")
    page.wait("document.querySelectorAll('#chart .span').length > 0")
    picture(page, "lab-cut")
    page.value(f"{button('node-2')}.click()")
    page.wait("$('state').innerText === 'well'")
    page.wait("$('troubles').innerText.includes(' s')")
    assert "broken on purpose" not in bench.do("status")


def test_the_keyboard_is_enough(page: Browser) -> None:
    for _ in range(10):
        page.press("Tab")
        if page.value("document.activeElement.getAttribute('aria-label')") == "Cut the link of node-2":
            break
    else:
        raise AssertionError("the button is not reached by Tab")
    page.press("Enter", "\r")
    page.wait("last.nodes[1].cut")
    page.wait("document.activeElement.getAttribute('aria-label') === 'Mend the link of node-2'")
    page.press("Enter", "\r")
    page.wait("!last.nodes[1].cut")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_page_fits_a_phone(lab_browser: Browser, bench: Bench, dark: bool) -> None:
    lab_browser.open(bench.directory().read_page(), width=390, height=800, dark=dark)
    lab_browser.wait(LOADED)
    assert lab_browser.value("document.documentElement.scrollWidth") <= 390
    colour = lab_browser.value("getComputedStyle(document.body).backgroundColor")
    assert colour == ("rgb(17, 22, 29)" if dark else "rgb(246, 247, 249)")
    picture(lab_browser, f"lab-phone-{'dark' if dark else 'light'}")


def test_a_fault_of_a_command_is_shown(page: Browser, bench: Bench) -> None:
    with bench.start("fault", "freeze", "node-1", "--for", "1000", "--rate", "20") as command:
        assert command.stderr is not None
        assert command.stderr.readline() == "agent of node-1 frozen …\n"
        page.wait("$('state').innerText === 'agent of node-1 frozen'")
        page.wait("last.nodes[0].agent === 'frozen' && last.talks.some(one => one.answered > 0)")
        command.send_signal(signal.SIGINT)
        command.communicate(timeout=60)
    page.wait("$('state').innerText === 'well'")
    assert "agent of node-1 frozen" in page.value("$('troubles').innerText")


TWO = """
apiVersion: v1
kind: Service
metadata: {name: NAME}
spec: {selector: {app: echo}, externalIPs: [198.51.100.77], ports: [{port: 80, targetPort: 8080}]}
"""


def said(bench: Bench, command: str = "problems", node: str = "node-1") -> str:
    """The first line of a command on a node."""
    outcome = bench.run("exec", node, "--", sys.executable, "-m", "nodeagent", command)
    return (outcome.output or outcome.errors).partition("\n")[0]


def agent(bench: Bench) -> int:
    """The process of the agent of node-1."""
    text = bench.do("exec", "node-1", "--", sys.executable, "-m", "nodeagent", "problems")
    return int(text.partition("(process ")[2].partition(",")[0])


def card(node: str) -> str:
    return f"cards.get({node!r}).about.innerText"


def test_an_address_that_two_services_want_is_shown_as_by_the_commands(
    page: Browser, bench: Bench, tmp_path: Path
) -> None:
    page.wait("$('state').innerText === 'well'")
    for name in ("first", "second"):
        (tmp_path / f"{name}.yaml").write_text(TWO.replace("NAME", name))
    files = [str(tmp_path / f"{name}.yaml") for name in ("first", "second")]
    kubectl = [str(KUBECTL), "--kubeconfig", bench.do("kubeconfig").strip()]
    subprocess.run([*kubectl, "create", *(f"--filename={one}" for one in files)], check=True, capture_output=True)
    try:
        for node in ("node-1", "node-2"):
            page.wait(f"{card(node)}.includes('not healthy: Service default/second, because ExternalIP 198.51.100.77')")
            assert said(bench, "problems", node) in page.value(card(node))
            assert said(bench, "explain", node).startswith(
                "not healthy: 1 of 4 Services, because default/second is impaired"
            )
        page.wait("$('state').innerText === 'node-1, node-2 are not healthy'")
        picture(page, "lab-two-services")
    finally:
        subprocess.run([*kubectl, "delete", *(f"--filename={one}" for one in files)], check=True, capture_output=True)
    page.wait("$('state').innerText === 'well'")
    assert said(bench) == "healthy: no problems"


def test_an_agent_that_is_stopped_hangs_and_goes_on(page: Browser, bench: Bench) -> None:
    page.wait("$('state').innerText === 'well'")
    process = agent(bench)
    os.kill(process, signal.SIGSTOP)
    try:
        page.wait("$('state').innerText === 'node-1 is not healthy'")
        page.wait(
            f"{card('node-1')}.includes('agent silent, the agent does not answer: it hangs, and what is programmed stays')"
        )
        picture(page, "lab-agent-stopped")
        for command in ("problems", "explain", "check"):
            assert "it hangs" in said(bench, command)
    finally:
        os.kill(process, signal.SIGCONT)
    page.wait("$('state').innerText === 'well'")
    assert said(bench) == "healthy: no problems"


def test_names_are_text_and_nothing_else(page: Browser) -> None:
    hostile = "<img src=x onerror=\"document.title='owned'\">"
    page.value(
        f"(() => {{ const news = structuredClone(last), bad = {hostile!r}; news.lab = bad; news.api = bad; news.faults = [bad]; news.nodes[0].name = bad;"
        "news.nodes[0].pods = {[bad]: 1}; news.nodes[0].addresses = [bad]; news.nodes[0].problem = bad; news.troubles = [{what: bad, began: news.at, ended: null}];"
        "news.talks = [{client: bad, role: bad, kind: bad, address: bad, answered: 1, failed: 1, median: null, pods: {[bad]: 1}}];"
        "news.services = [{name: bad, address: bad, endpoints: [1], connections: 1}]; news.tracked = [{node: bad, client: bad, address: bad, endpoint: bad, count: 1}]; show(news); })()"
    )
    assert page.value("document.querySelectorAll('img').length") == 0
    assert page.value("document.title.includes('<img')")
    assert page.value("$('picture').textContent.includes('<img')")


def test_without_the_token_it_is_empty_and_says_what_to_do(lab_browser: Browser, bench: Bench) -> None:
    lab_browser.open(bench.directory().read_page().partition("#")[0])
    lab_browser.wait("typeof $ !== 'undefined' && $('state').innerText.includes('nodeagent lab status')")
    assert lab_browser.value("document.querySelectorAll('.node').length") == 0


def test_nothing_is_asked_of_anybody_else(page: Browser, bench: Bench) -> None:
    asked = page.value("performance.getEntriesByType('resource').map(one => one.name)")
    place = bench.directory().read_page().partition("#")[0]
    assert all(one.startswith(place) for one in asked)
    assert page.errors == []


def test_an_agent_that_is_killed_does_not_run(page: Browser, bench: Bench) -> None:
    page.wait("$('state').innerText === 'well'")
    os.kill(agent(bench), signal.SIGKILL)
    page.wait("$('state').innerText === 'node-1 is not healthy'")
    page.wait(f"{card('node-1')}.includes('agent stopped, no agent runs, and what is programmed stays')")
    picture(page, "lab-agent-killed")
    for command in ("problems", "explain"):
        assert "what is programmed stays as it is" in said(bench, command)
    checked = bench.run("exec", "node-1", "--", sys.executable, "-m", "nodeagent", "check").output
    assert "no agent runs" in checked, "in the first line if no other agent has removed the socket that this one left"
    assert said(bench, "problems", "node-2") == "healthy: no problems"


def test_a_lab_that_is_taken_down_is_shown_as_gone(page: Browser, bench: Bench) -> None:
    bench.do("down")
    page.wait("$('state').innerText.includes('the lab does not answer')")
