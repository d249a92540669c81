"""What tests share: places in the repository, servers, a daemon. No test stands here."""
