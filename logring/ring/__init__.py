"""The ring of one run: blocks of output in shared memory, and the writer that fills them.

The supervisor writes rings; every reader goes through :mod:`logring.reader`. Nothing here waits for a disk.
"""
