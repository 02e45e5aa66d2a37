"""Sync collections of MongoDB, and of what speaks its protocol: ``reading`` is the source itself."""
