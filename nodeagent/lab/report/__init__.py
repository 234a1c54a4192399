"""A run of faults as files: a plot and the raw numbers of each, and a page with the verdicts.

axis             values → positions, and where the grid lines are        (pure)
plot             a fault → SVG                                           (pure)
report_document  verdicts, numbers, plots → HTML; all connections → CSV  (pure)
folder           writes all of it into a directory
"""
