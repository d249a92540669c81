"""Print numbered lines until told otherwise: numbered.py COUNT PAUSE_S SIDE_FILE.

Each line is written to the side file before it is printed, so that the file is the child's own record of its output.
"""

import sys
import time

count, pause_s, side_path = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
with open(side_path, "a", buffering=1) as side:
    for number in range(count):
        side.write(f"{number}\n")
        print(f"line {number}", flush=True)
        if pause_s:
            time.sleep(pause_s)
