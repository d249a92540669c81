"""Check that a web server answers successfully and in time.

    check_http.py URL [--within SECONDS]

Exit status: 1 without an answer, 2 for an error response, 3 if the server is too slow.
"""

import argparse
import sys
import time
import urllib.error
import urllib.request


def main() -> int:
    """Send one request."""
    parser = argparse.ArgumentParser(description="Check that a web server answers.")
    parser.add_argument("url")
    parser.add_argument("--within", type=float, default=2.0, metavar="SECONDS")
    arguments = parser.parse_args()
    if not arguments.url.startswith(("http://", "https://")):
        parser.error("the URL must begin with http:// or https://")
    started = time.monotonic()
    try:
        with urllib.request.urlopen(arguments.url, timeout=10) as answer:  # noqa: S310 - the scheme is checked above
            size = len(answer.read())
            status = answer.status
    except urllib.error.HTTPError as err:
        print(f"{arguments.url}: status {err.code} {err.reason}", file=sys.stderr)
        err.close()
        return 2
    except OSError as err:  # URLError and timeouts are OSErrors
        print(f"{arguments.url}: no answer: {err}", file=sys.stderr)
        return 1
    took = time.monotonic() - started
    print(f"{arguments.url}: status {status}, {size} bytes in {took * 1000:.1f} ms")
    if took > arguments.within:
        print(f"slower than {arguments.within} s", file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
