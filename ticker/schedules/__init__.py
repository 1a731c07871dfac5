"""Texts for times: one file per kind, all pure; `kinds` is the way in, and the only one that loads the libraries."""
