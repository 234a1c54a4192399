"""README.md, as somebody types it: what is between `unshare -n bash` and `exit`, in the checkout."""

from pathlib import Path

from tests.harness.typed_commands import BEGIN, END, Shell, follow, steps

HERE = Path(__file__)
ROOT = HERE.parents[3]


def test_its_commands_do_what_it_says() -> None:
    marked = (ROOT / "README.md").read_text().partition(f"<!-- run by {HERE.relative_to(ROOT)} -->")[2]
    typed = steps(marked.partition("<!-- ")[0])
    assert (typed[0].command, typed[-1].command) == (BEGIN, END)
    assert sum(bool(step.shown) for step in typed) == 2
    shell = Shell(ROOT)
    try:
        follow(shell, typed[1:-1])
        assert "nodeagent" not in shell.run("nft list tables; ip -br link")
    finally:
        shell.end()
