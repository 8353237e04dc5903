"""Weights that many replicas of a light model share: one copy per node, versioned, replaced while requests run.

``snapshot.py`` says what a version is, ``tensors.py`` turns modules into bytes and back without copying, ``store.py``
keeps versions, ``sharing.py`` is what a loader calls. On Ray the bytes lie in the node's object store
(``app/deployments/weight_store.py``); without Ray they are shared inside the process.
"""
