"""What all kinds share: verbs, rules of writing, ownership of fields, selectors, the engine of shapes. Knows no kind."""
