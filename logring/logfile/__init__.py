"""Log files: blocks moved out of the ring, packed and compressed on disk, and their recovery after a crash.

The file thread of the supervisor and the janitor write log files; readers go through :mod:`logring.reader`. Modules
here may wait for a disk, so the control and pump threads of the supervisor call none of them.
"""
