"""What a kind is described in: documents, shapes, formats, rules, printed columns, errors as clients see them. Pure."""
