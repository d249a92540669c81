r"""Print one text, wait for a file, print another one: in_parts.py FILE TEXT TEXT [STATUS]; texts with \r, \x1b ..."""

import os
import sys
import time

path, first, second = sys.argv[1:4]
for text in (first, second):
    sys.stdout.buffer.write(text.encode().decode("unicode_escape").encode("latin-1"))
    sys.stdout.buffer.flush()
    while not os.path.exists(path):
        time.sleep(0.01)
sys.exit(int(sys.argv[4]) if len(sys.argv) > 4 else 0)
