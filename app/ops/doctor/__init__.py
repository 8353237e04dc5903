"""Tells whether a cluster has what a set of the chart's values needs: ``python -m app.ops.doctor``."""
