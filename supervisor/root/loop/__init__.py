"""The control thread and its epoll loop and signals.

Only the root imports this room. Nothing here waits for a file system or a name service.
"""
