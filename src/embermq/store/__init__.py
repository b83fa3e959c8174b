"""The message store: synchronous, no asyncio, no network."""
