"""The building blocks of kinds: documents, schemas, formats, rules, printed columns, errors for clients. Pure."""
