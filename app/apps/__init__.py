"""The applications beside the pipeline, ``/analyze`` and ``/articles``, and what they are composed of.

Plain Python: ``composition.py`` has the three patterns, ``analyze.py`` and ``articles.py`` are two compositions of
steps, ``backends`` holds what judges sentiment, summarises and names entities. Serve is left to ``app/deployments``.
"""
