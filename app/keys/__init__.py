"""API keys: the file that lists them, what each may do, and what each has used."""
