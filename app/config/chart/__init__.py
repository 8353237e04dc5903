"""The values of ``charts/baton``: what the chart's schema, its documentation and the checks before an install know."""
