"""Our tables as people see them: what is wanted and what is there, element by element (pure)."""
