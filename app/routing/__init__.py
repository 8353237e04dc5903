"""Which variant of a profile answers a request: rules, weights, names, shadows."""
