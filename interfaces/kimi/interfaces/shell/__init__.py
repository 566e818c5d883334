"""The interactive shell: a person at a terminal (runtime spec 8)."""
