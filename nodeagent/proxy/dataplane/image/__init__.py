"""The elements of the table (pure): what Services need in the sets, and how that differs from what is programmed.

Reading order: image.py (set name → key → value), render.py (one Service), desired.py (all of them), delta.py (the difference).
"""
