"""The parts of the guardrail: folding of disguises, term matching, patterns, classifier, output gate."""
