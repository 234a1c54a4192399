"""What brings the table into the kernel: what is believed of it, the least transactions that make it right, their commit.

Reading order: belief.py, commit_plan.py, transaction.py, ruleset.py, driver.py.
"""
