"""A run of faults as files: a picture and the raw figures of each, and a page with the verdicts.

axis      values → places on paper, and where the lines of a grid are    (pure)
plot      a fault → SVG                                                  (pure)
document  verdicts, figures, pictures → HTML; every connection → CSV     (pure)
folder    all that in a directory
"""
