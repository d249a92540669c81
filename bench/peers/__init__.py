"""Other process managers, side by side with ours: ``python -m bench peers``. See :mod:`bench.peers.rows`."""
