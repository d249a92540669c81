"""Code that tests share: places in the repository, servers, a daemon. It contains no tests."""
