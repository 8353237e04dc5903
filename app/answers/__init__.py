"""Judging the answer: sentences, grounding, confidence, JSON."""
