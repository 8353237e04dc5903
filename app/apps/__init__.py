"""Applications beside the pipeline, built from the same stages."""
