"""The interactive shell for a user at a terminal (runtime spec 8)."""
