"""Remove the directory one stands in, and go on with another program there: loses_directory.py."""

import os
import tempfile

directory = tempfile.mkdtemp()
os.chdir(directory)
os.rmdir(directory)
os.execv("/bin/sh", ["sh", "-c", "echo still here; exit 3"])
