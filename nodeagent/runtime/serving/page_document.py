"""Builds a page as it is sent: with the style that all pages have before its own."""

from pathlib import Path

from nodeagent.runtime.serving.page_headers import document_headers
from nodeagent.runtime.serving.responses import Response

_STYLE = Path(__file__).with_name("page.css")


def page_document(page: Path) -> Response:
    """Returns the answer that holds the page. page: a file of HTML with one ``<style>`` and one ``<script>``."""
    begin = "<style>\n"
    document = page.read_text(encoding="utf-8").replace(begin, begin + _STYLE.read_text(encoding="utf-8"), 1)
    return Response(200, document_headers(document), document.encode())
