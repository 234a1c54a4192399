"""What nf_tables understands, as values and bytes: rules' expressions, and the objects of a ruleset. Pure."""
