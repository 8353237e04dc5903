"""Moves traffic from one variant to another in steps, each judged by metrics, and back when a judgement is bad."""
