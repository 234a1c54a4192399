"""Headers for a page that is complete and loads nothing from other servers. Pure."""

from base64 import b64encode
from hashlib import sha256


def document_headers(document: str) -> dict[str, str]:
    """Returns headers that allow only the document's own script and style, by their hashes, and connections only to this server."""

    def allowed(tag: str) -> str:
        inside = document.split(f"<{tag}>", 1)[1].split(f"</{tag}>", 1)[0]
        return f"'sha256-{b64encode(sha256(inside.encode()).digest()).decode()}'"

    policy = (
        f"default-src 'none'; script-src {allowed('script')}; style-src {allowed('style')}; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return {
        "Content-Type": "text/html; charset=utf-8",
        "Content-Security-Policy": policy,
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-store",
    }
