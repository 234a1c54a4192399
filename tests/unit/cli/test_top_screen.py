"""Keys of `nodeagent top`: what a terminal sends, what each changes, and which rows that leaves."""

import pytest

from nodeagent.cli.top_screen import SORTED, Screen, apply_key, footer, keys_of, select_rows
from nodeagent.diagnosis.explain.rates import Rate

RATES = (Rate("default/web:http", 2.0, 5, ()), Rate("default/api:grpc", 0.0, 900, ()), Rate("shop/Web", 7.0, 7, ()))


def after(keys: str, screen: Screen | None = None) -> Screen:
    found = screen or Screen()
    for key in keys_of(keys):
        found = apply_key(found, key)
    return found


@pytest.mark.parametrize(
    ("sent", "keys"),
    [
        ("", []),
        ("sr/", ["s", "r", "/"]),
        ("ä", ["ä"]),
        ("\r", ["enter"]),
        ("\n", ["enter"]),
        ("\x7f\b", ["backspace", "backspace"]),
        ("\x1b", ["escape"]),
        ("\x1b[C\x1b[D", ["right", "left"]),
        ("\x1bOC\x1bOD", ["right", "left"]),
        ("\x1b[3~q", ["q"]),
        ("\x1b[1;5Cq", ["q"]),
        ("\x1b[", []),
        ("\x1bOPq", ["q"]),
        ("\x00\x04\tq", ["q"]),
    ],
)
def test_a_terminal_sends_keys(sent: str, keys: list[str]) -> None:
    assert keys_of(sent) == keys


@pytest.mark.parametrize(
    ("keys", "screen"),
    [
        ("", Screen()),
        ("s", Screen(by="total")),
        ("ss", Screen(by="name")),
        ("sss", Screen()),
        ("S", Screen(by="name")),
        ("\x1b[C", Screen(by="total")),
        ("\x1b[D", Screen(by="name")),
        ("r", Screen(reverse=True)),
        ("rr", Screen()),
        ("rs", Screen(by="total", reverse=True)),
        ("?", Screen(help=True)),
        ("h?", Screen()),
        ("?\x1b", Screen()),
        ("x", Screen()),
        ("\r", Screen()),
        ("q", Screen(ended=True)),
        ("/", Screen(typing=True)),
        ("/sqr", Screen(typing=True, wanted="sqr")),
        ("/sq\x7f\r", Screen(wanted="s")),
        ("/\x7f", Screen(typing=True)),
        ("/web\x1b[C", Screen(typing=True, wanted="web")),
        ("/web\x1b", Screen()),
        ("/web\r\x1b", Screen()),
        ("/we\r/b\r", Screen(wanted="web")),
        ("/web\rq", Screen(wanted="web", ended=True)),
    ],
)
def test_a_key_changes_the_screen(keys: str, screen: Screen) -> None:
    assert after(keys) == screen


@pytest.mark.parametrize(
    ("keys", "services"),
    [
        ("", ["shop/Web", "default/web:http", "default/api:grpc"]),
        ("s", ["default/api:grpc", "shop/Web", "default/web:http"]),
        ("ss", ["default/api:grpc", "default/web:http", "shop/Web"]),
        ("ssr", ["shop/Web", "default/web:http", "default/api:grpc"]),
        ("/WEB\r", ["shop/Web", "default/web:http"]),
        ("/default/\r", ["default/web:http", "default/api:grpc"]),
        ("/nothing\r", []),
    ],
)
def test_the_screen_decides_the_rows(keys: str, services: list[str]) -> None:
    assert [one.service for one in select_rows(RATES, after(keys), None)] == services
    assert [one.service for one in select_rows(RATES, after(keys), 1)] == services[:1]


def test_every_order_has_a_place_among_the_keys() -> None:
    assert {after("s" * times).by for times in range(len(SORTED))} == set(SORTED)


def test_the_last_line_says_what_is_shown() -> None:
    assert footer(Screen(), 3, 3) == ("3 of 3   by rate   ? keys",)
    assert footer(after("sr/web\r"), 2, 3) == ("2 of 3   by total, reversed   filter: web   ? keys",)
    assert footer(after("/we"), 2, 3)[0].startswith("filter: we_")
    assert "q quit" in footer(after("?"), 3, 3)[1]


def test_a_long_filter_ends_somewhere() -> None:
    assert len(after("/" + "x" * 5000).wanted) == 200
