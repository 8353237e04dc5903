"""Offline work: files of requests, each answered exactly once, whatever stops the run in between."""
