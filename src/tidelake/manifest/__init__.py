"""What is known of the cold segments of a scope, in tiers: ``manifest.json`` in a fixed shape, and faster copies of it.

Only segmented tables have manifests: those with a user scope or a key. May import ``catalog``, ``format``, ``objects``
and below. Its door is ``ManifestService`` in ``service``; ``manifest_json`` is pure and says what the bytes are.
"""
