"""The audit log of quota changes."""
