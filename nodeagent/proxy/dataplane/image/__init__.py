"""The elements of the table (pure): what Services put into the sets, and what differs from what is programmed.

Reading order: image.py (set name → key → value), render.py (one Service), desired.py (all of them), delta.py (the difference).
"""
