"""Brings the table into the kernel: what is believed of it, the smallest transactions that correct it, their commit.

Reading order: belief.py, commit_plan.py, transaction.py, ruleset.py, driver.py.
"""
