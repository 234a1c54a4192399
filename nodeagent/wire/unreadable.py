"""What msgspec raises for bytes that it cannot decode: text that is not UTF-8, and values in values in values, have errors of Python's own."""

import msgspec

UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
