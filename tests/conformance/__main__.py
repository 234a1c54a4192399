"""`python -m tests.conformance`: brings up clusters, runs the specs beside each proxy, and writes docs/conformance.md.

Without --only all is run; results stay in the directory, so that parts can be run one after the other. --report runs nothing.
It fails where a conformance spec failed beside nodeagent, or a cluster did not come up.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from nodeagent import __version__
from nodeagent.lab.net.network_namespaces import LabError
from tests.conformance import report, specs
from tests.conformance.proxies import PROXIES, Proxy
from tests.conformance.run import known, run
from tests.conformance.versions import versions
from tests.harness.kubernetes import images
from tests.harness.kubernetes.network_plugin import BRIDGE, PLUGINS, NetworkPlugin
from tests.harness.kubernetes.release import ROOT, Release

PLACE = ROOT / "build" / "conformance"
DOCUMENT = ROOT / "docs" / "conformance.md"
IMAGE = ROOT / "dist" / f"nodeagent-{__version__}-amd64.tar"


def main() -> int:
    options = _options()
    try:
        release = Release.of_environment()
        release.check("e2e.test", "agnhost", "kube-proxy", "coredns")
        known_specs = known(release, options.directory)
        if not options.report:
            _run_parts(options, release, known_specs)
        text = report.write(options.directory, known_specs, versions(release))
    except LabError as error:
        print(f"conformance: {error}", file=sys.stderr)
        return 1
    DOCUMENT.write_text(text)
    print(report.table(options.directory))
    return 1 if report.fails(options.directory) else 0


def _run_parts(options: argparse.Namespace, release: Release, known_specs: Sequence[str]) -> None:
    if not options.image.exists():
        raise LabError(f"no image {options.image}: `make image` builds it")
    archives = [options.images or images.make(release), options.image]
    for plugin, proxy, kind in parts():
        name = f"{plugin.name}-{proxy.name}-{kind}"
        if not options.only or name in options.only:
            number, of = options.share
            wanted = specs.chosen(known_specs, kind)[number - 1 :: of]
            place = options.directory / (name if of == 1 else f"{name}-{number}-of-{of}")
            if options.again:
                wanted = [spec for spec in wanted if any(text in spec for text in options.again)]
                place = options.directory / f"{name}-again"
            run(release, archives, plugin, proxy, kind, wanted, place, options.jobs, options.nodes)


def parts() -> Iterator[tuple[NetworkPlugin, Proxy, str]]:
    """Conformance and dual-stack specs with each plugin; the others with the one that most clusters resemble."""
    for plugin in PLUGINS.values():
        for proxy in PROXIES.values():
            for kind in specs.KINDS:
                if kind != specs.OTHERS or plugin is BRIDGE:
                    yield plugin, proxy, kind


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="conformance", description="Kubernetes' own tests of the network, as a table")
    every = [f"{plugin.name}-{proxy.name}-{kind}" for plugin, proxy, kind in parts()]
    parser.add_argument("--only", action="append", choices=every, help="run this part; may be repeated")
    parser.add_argument("--share", type=_share, default=(1, 1), metavar="K/N", help="run share K of N, about equal")
    parser.add_argument("--again", action="append", metavar="TEXT", help="run only specs with this in their name")
    parser.add_argument("--report", action="store_true", help="run nothing, write the document from earlier results")
    parser.add_argument("--jobs", type=int, default=3, help="that many specs at a time")
    parser.add_argument(
        "--nodes", type=int, default=3, help="of a cluster; some specs skip themselves with less than 3"
    )
    parser.add_argument("--image", type=Path, default=IMAGE, help="archive of nodeagent's image")
    parser.add_argument("--images", type=Path, help="archive of the tests' images; made where it is not given")
    parser.add_argument("--directory", type=Path, default=PLACE, help="where results are")
    return parser.parse_args()


def _share(text: str) -> tuple[int, int]:
    number, _, of = text.partition("/")
    if not (number.isdecimal() and of.isdecimal() and 1 <= int(number) <= int(of)):
        raise argparse.ArgumentTypeError(f"{text!r} is not a share like 1/3")
    return int(number), int(of)


if __name__ == "__main__":
    sys.exit(main())
