"""The own engine loop: an application that drives vLLM's engine itself, step by step, with hooks round each step."""
