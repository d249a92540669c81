"""Print as many bytes as asked for, as fast as possible: floods.py BYTES. Lines of 100 bytes, numbered."""

import sys

line_count = int(sys.argv[1]) // 100
for start in range(0, line_count, 1000):
    sys.stdout.write("".join(f"{number:099d}\n" for number in range(start, min(start + 1000, line_count))))
