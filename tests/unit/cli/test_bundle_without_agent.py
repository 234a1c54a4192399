"""A bundle that cannot be made leaves the files that exist as they are."""

from pathlib import Path

from click.testing import CliRunner

from nodeagent.cli.exit_codes import FAILED
from nodeagent.cli.main import main


def test_without_an_agent_an_earlier_bundle_stays(tmp_path: Path) -> None:
    earlier = tmp_path / "report.tar.gz"
    earlier.write_bytes(b"an earlier report")
    done = CliRunner().invoke(main, ["bundle", str(earlier), "--socket", str(tmp_path / "no.sock")])
    assert done.exit_code == FAILED
    assert "no agent answers" in done.output
    assert earlier.read_bytes() == b"an earlier report"
