"""Objects of nf_tables as values and bytes: rules' expressions, and the objects of a ruleset. Pure."""
