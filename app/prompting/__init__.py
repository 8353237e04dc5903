"""Building the prompt: the model's own tokenizer and template, turns, passages, control tokens."""
