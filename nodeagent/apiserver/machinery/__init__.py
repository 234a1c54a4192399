"""What all kinds share: verbs, rules for writes, field ownership, selectors, schemas. Knows no kind by name."""
