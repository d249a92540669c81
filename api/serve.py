"""The API server's entry: running daemons of other versions start ``python -I -m api.serve``."""

from api.server.serve import main

if __name__ == "__main__":
    main()
