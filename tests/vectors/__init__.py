"""Tests of the room that finds nearest vectors."""
