"""Records `nodeagent demo` as a picture that moves: sudo .venv/bin/python docs/images/record_demo.py >docs/images/demo.svg

Each line appears when the demo printed it, at half the speed. A reader who asked for no motion sees the end. The picture holds text alone: no script, no font.
"""

import os
import subprocess
import sys
import time
from html import escape
from pathlib import Path

COLUMNS, ROWS = 104, 30
CHARACTER, LINE, MARGIN, SIZE = 7.25, 17, 12, 12
SLOWER, HOLD_SECONDS = 2.0, 10.0
STYLE = """\
text{{font:{size}px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;fill:#d6dde6;white-space:pre}}
.t{{fill:#7d8b9a}}.g{{fill:#7ee2a0}}
#s{{animation:s {seconds:.1f}s step-end infinite;transform:translateY({end}px)}}
@media(prefers-reduced-motion:reduce){{#s{{animation:none}}}}
@keyframes s{{{frames}}}"""


def record(command: list[str]) -> list[tuple[float, str]]:
    """What a command prints: seconds since its start, and a line. Raises CalledProcessError if it fails."""
    environment = os.environ | {"COLUMNS": str(COLUMNS), "PYTHONUNBUFFERED": "1"}
    started = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        lines = [(time.monotonic() - started, line.rstrip()) for line in process.stdout]
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return lines


def picture(lines: list[tuple[float, str]], title: str) -> str:
    """The lines as SVG, scrolled up as they appear."""
    seconds = lines[-1][0] * SLOWER + HOLD_SECONDS
    height = MARGIN * 2 + LINE * ROWS
    width = round(MARGIN * 2 + CHARACTER * COLUMNS)
    offsets = {0.0: ROWS * LINE} | {when: (ROWS - number) * LINE for number, (when, _) in enumerate(lines, 1)}
    frames = "".join(
        f"{when * SLOWER / seconds:.2%}{{transform:translateY({there}px)}}" for when, there in offsets.items()
    )
    end = (ROWS - len(lines)) * LINE
    style = STYLE.format(size=SIZE, seconds=seconds, end=end, frames=frames)
    texts = "\n".join(shown(line, MARGIN + LINE * number) for number, (_, line) in enumerate(lines, 1))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-label="{escape(title)}">\n'
        f"<title>{escape(title)}</title>\n<style>{style}</style>\n"
        f'<rect width="{width}" height="{height}" rx="8" fill="#10161d"/>\n'
        f'<clipPath id="c"><rect y="{MARGIN}" width="{width}" height="{height - MARGIN * 2}"/></clipPath>\n'
        f'<g clip-path="url(#c)"><g id="s">\n{texts}\n</g></g></svg>\n'
    )


def shown(line: str, y: float) -> str:
    """A line, its time dim, and good news green."""
    stamp, text = line[:9], line[9:]
    good = ' class="g"' if any(words in text for words in ("none failed", " 0 failed")) else ""
    dim = f'<tspan class="t">{escape(stamp)}</tspan>' if stamp.strip() else escape(stamp)
    return f'<text x="{MARGIN}" y="{y - 4}" xml:space="preserve">{dim}<tspan{good}>{escape(text)}</tspan></text>'


if __name__ == "__main__":
    program = Path(sys.executable).parent / "nodeagent"
    sys.stdout.write(picture(record([str(program), "demo"]), "nodeagent demo in a terminal, at half the speed"))
