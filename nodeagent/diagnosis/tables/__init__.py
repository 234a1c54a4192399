"""Our tables in words: the elements that are wanted and those that exist (pure)."""
