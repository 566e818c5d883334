"""Compose the tools: those of the machine, of the dialog and of the web, and the set that a conversation gets."""
