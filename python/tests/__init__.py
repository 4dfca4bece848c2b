"""Tests of the reader, against a writer that shares no code with it."""
