"""Recognises the addresses that nearly all objects have: canonical IPv4 text without a special use. It is used as it is."""

import re
from typing import Final

from nodeagent.model.packed import SEPARATOR

_OCTET = r"(?:1[0-9]{0,2}|2(?:[0-4][0-9]?|5[0-5]?|[6-9])?|[3-9][0-9]?|0)"
"""Its first digit decides what may follow, so that no text is looked at in several ways."""
_ORDINARY = rf"(?!0|127\.|169\.254\.|22[4-9]\.|23[0-9]\.){_OCTET}\.{_OCTET}\.{_OCTET}\.{_OCTET}"

is_ordinary_ipv4: Final = re.compile(_ORDINARY).fullmatch
are_ordinary_ipv4: Final = re.compile(f"{_ORDINARY}(?:{SEPARATOR}{_ORDINARY})*").fullmatch
"""For addresses in one text, with separators."""
