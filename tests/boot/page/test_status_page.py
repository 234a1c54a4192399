"""The status page in a headless Chromium: 9,001 services, found, followed and explained, by mouse and keyboard."""

import os
import re
import signal
import time
from pathlib import Path

import pytest

from tests.boot.page.browser import Browser
from tests.boot.page.conftest import SHOP
from tests.harness.cluster import NODE, Cluster
from tests.harness.warm_start import AGENT
from tests.harness.worlds.process import AgentProcess

PAGE = "http://127.0.0.1:10249/"
LOADED = "typeof rows !== 'undefined' && rows.size >= 9001 && last"
BLOCKED_MILLISECONDS = 200


@pytest.fixture
def page(browser: Browser) -> Browser:
    browser.open(PAGE)
    browser.wait(LOADED)
    return browser


def picture(browser: Browser, name: str) -> None:
    """Kept where PICTURES says, for people to look at."""
    if directory := os.environ.get("PICTURES"):
        browser.picture(Path(directory) / f"{name}.png")


def search(browser: Browser, text: str) -> None:
    browser.value(f"(() => {{ $('search').value = {text!r}; $('search').oninput(); }})()")


def explained(cluster: Cluster, service: str) -> str:
    """The first line of `nodeagent explain`: the verdict."""
    return cluster.world.run(NODE, [*AGENT, "explain", service, "--no-probe"], check=False).stdout.splitlines()[0]


def test_the_overview_says_how_things_are(page: Browser) -> None:
    page.wait("$('cards').innerText.includes('9,001')")
    assert page.value("$('state').innerText") in {"well", "1 problem", "2 problems"}
    assert page.value("$('recent').children.length") >= 1
    picture(page, "overview")


def test_ten_thousand_services_hold_nobody_up(page: Browser) -> None:
    """The page draws what can be seen. Other tests want the processors too: the quickest of five times is what it takes."""
    page.value("choose('services')")
    measured = (
        "(() => { const began = performance.now(); for (const word of ['s','sv','svc-0432','']) "
        "{ $('search').value = word; $('search').oninput(); } return (performance.now() - began) / 4; })()"
    )
    assert min(page.value(measured) for _ in range(5)) < BLOCKED_MILLISECONDS
    assert page.value("$('space').children.length") < 60
    page.value("$('list').scrollTop = 8000 * HEIGHT; draw()")
    assert page.value("$('space').children.length") > 10


def test_a_service_is_found_and_its_way_is_drawn(page: Browser) -> None:
    page.value("choose('services')")
    search(page, "default/shop")
    page.wait("shown.length === 1")
    page.value("$('space').firstChild.click()")
    page.wait(f"$('detail').innerText.includes({SHOP[0]!r})")
    text = page.value("$('detail').innerText")
    for word in ("frontends", "pick-2", "one of 2 at random", "10.244.", "(this node)", "postrouting"):
        assert word in text
    picture(page, "service")


def test_everything_can_be_done_with_the_keyboard(page: Browser) -> None:
    page.press("/", "/")
    page.wait("document.activeElement === $('search')")
    for letter in "shop":
        page.press(letter, letter)
    page.wait("shown.length === 1")
    page.press("ArrowDown")
    page.wait("document.activeElement === $('list')")
    page.press("Enter")
    page.wait("$('detail').innerText.includes('way to default/shop')")


def test_connections_are_seen_as_they_come(page: Browser, cluster: Cluster) -> None:
    before = page.value("rows.get('default/shop')[4]")
    assert not cluster.world["caller"].ask(SHOP[0], 80, count=20).failures
    page.wait(f"rows.get('default/shop')[4] === {before + 20}")
    page.value("choose('overview')")
    page.wait("$('busy').innerText.includes('default/shop') && $('busy').innerText.includes('20 connections')")
    page.wait("curve.some(one => one[1] > 0)")
    picture(page, "overview-live")


def test_a_problem_appears_and_goes(page: Browser, cluster: Cluster) -> None:
    page.value("choose('problems')")
    rival = cluster.expose("rival", *SHOP, pods=["web-0"])
    page.wait("$('problem-rows').innerText.includes('default/rival')")
    picture(page, "problem")
    cluster.withdraw(rival)
    page.wait("!$('problem-rows').innerText.includes('default/rival')")


def test_a_service_comes_and_goes(page: Browser, cluster: Cluster) -> None:
    new = cluster.expose("brand-new", "10.96.99.1", pods=["web-0"])
    page.wait("rows.has('default/brand-new')")
    cluster.withdraw(new)
    page.wait("!rows.has('default/brand-new')")


def test_a_stopped_agent_is_shown_and_found_again(page: Browser, agent: AgentProcess) -> None:
    agent.stop(seconds=60.0)
    page.wait("$('state').innerText.startsWith('stale, last answer ')")
    assert "yes" not in page.value("$('cards').innerText")
    printed = len(agent.lines)
    agent.restart()
    agent.wait_for_line(" ready: ", after=printed, seconds=60.0)
    page.wait("!document.body.matches('.stale') && $('cards').innerText.includes('yes') && rows.size >= 9001")


def test_a_frozen_agent_makes_the_page_stale_until_it_goes_on(page: Browser, agent: AgentProcess) -> None:
    """Its kernel still takes connections, so that no error ends the stream."""
    page.value("choose('services')")
    fresh = page.value("getComputedStyle($('space').firstChild).opacity")
    agent.signal(signal.SIGSTOP)
    try:
        began = time.monotonic()
        page.wait("$('state').innerText.startsWith('stale, last answer ')")
        assert 3.0 < time.monotonic() - began < 10.0
        assert re.search(r"[0-9]{2}:[0-9]{2}:[0-9]{2} UTC", page.value("$('lost').innerText"))
        assert page.value("getComputedStyle($('space').firstChild).opacity") != fresh
        picture(page, "stale-services")
        page.value("choose('overview')")
        tiles = page.value("$('cards').innerText")
        assert "yes" not in tiles
        assert tiles.count("UTC") == page.value("$('cards').children.length")
        picture(page, "stale")
        page.show_as(width=390, height=800, dark=True)
        assert page.value("document.documentElement.scrollWidth") <= 390
        page.wait("$('chart').viewBox.baseVal.width === $('chart').clientWidth")
        picture(page, "stale-phone-dark")
        page.wait("performance.now() - answered > 20e3")
        assert page.value("document.body.matches('.stale')")
    finally:
        agent.signal(signal.SIGCONT)
    page.wait("!document.body.matches('.stale') && $('cards').innerText.includes('yes') && rows.size >= 9001")
    assert page.value("$('lost').hidden")


def test_a_service_without_an_endpoint_is_not_well(page: Browser, cluster: Cluster) -> None:
    page.value("choose('services')")
    broken = cluster.expose("broken", "10.96.99.2")
    page.wait("$('state').innerText.includes('1 Service lacks endpoints')")
    page.wait("$('cards').innerText.includes('lack endpoints')")
    search(page, "default/broken")
    said = explained(cluster, "default/broken")
    assert "its EndpointSlices are empty" in said
    because = said.partition(" because ")[2].partition("; ")[0]
    page.wait(f"$('space').firstChild.innerText.includes({because!r})")
    assert page.value("$('space').firstChild.title") == said
    page.value("$('space').firstChild.click()")
    page.wait(f"$('detail').innerText.includes({said!r})")
    picture(page, "broken")
    for dark in (False, True):
        page.open(f"{PAGE}#services", width=390, height=800, dark=dark)
        page.wait(LOADED)
        search(page, "default/broken")
        page.wait(f"$('space').firstChild.innerText.includes({because!r})")
        assert page.value("document.documentElement.scrollWidth") <= 390
        picture(page, f"broken-phone-{'dark' if dark else 'light'}")
    cluster.withdraw(broken)
    page.wait("!$('state').innerText.includes('Service')")


def test_an_empty_list_says_why(page: Browser) -> None:
    page.value("choose('services')")
    search(page, "no such service")
    assert page.value("$('none').innerText") == "No Service matches the search."
    page.value(
        "(() => { const news = structuredClone(last); Object.assign(news, {transactions: [], problems: [], problem_count: 0, "
        "services: [...rows.keys()].map(name => [name, '', 0, 0, 0, 'gone'])}); search.value = ''; show(news); })()"
    )
    assert page.value("$('none').innerText") == "The agent knows no Service that it is to serve."
    picture(page, "empty")
    for place in ("all", "recent"):
        assert "No transaction since the agent started" in page.value(f"$('{place}').textContent")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_page_fits_a_phone(browser: Browser, dark: bool) -> None:
    browser.open(f"{PAGE}#services", width=390, height=800, dark=dark)
    browser.wait(LOADED)
    assert browser.value("document.documentElement.scrollWidth") <= 390
    colour = browser.value("getComputedStyle(document.body).backgroundColor")
    assert colour == ("rgb(17, 22, 29)" if dark else "rgb(246, 247, 249)")
    search(browser, "shop")
    browser.value("$('space').firstChild.click()")
    browser.wait("$('detail').innerText.includes('frontends')")
    picture(browser, f"phone-{'dark' if dark else 'light'}")


def test_names_are_text_and_nothing_else(page: Browser) -> None:
    hostile = "<img src=x onerror=\"document.title='owned'\">"
    page.value(
        f"(() => {{ const news = structuredClone(last); const bad = {hostile!r}; news.problems = [{{subject: bad, reason: bad, detail: bad, since: bad}}];"
        "news.problem_count = 1; news.about.node = bad; news.services = [[bad, bad, 1, 1, 1, 'ok']]; show(news); choose('services'); })()"
    )
    assert page.value("document.querySelectorAll('img').length") == 0
    assert page.value("rows.has(" + repr(hostile) + ")")
    assert page.value("$('problem-rows').innerText.includes('<img') || $('problem-rows').textContent.includes('<img')")


def test_nothing_is_asked_of_anybody_else(page: Browser) -> None:
    asked = page.value("performance.getEntriesByType('resource').map(one => one.name)")
    assert asked
    assert all(one.startswith(PAGE) for one in asked)
    assert page.errors == []


def test_a_request_with_a_foreign_host_name_is_refused(cluster: Cluster) -> None:
    command = ["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "-H"]
    for host, status in (
        ("evil.example", "403"),
        ("evil.example:10249", "403"),
        ("127.0.0.1.", "403"),
        ("[::1]:10249", "200"),
    ):
        assert cluster.world.run(NODE, [*command, f"Host: {host}", PAGE]).stdout == status
