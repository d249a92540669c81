"""What ``ringward up`` settles before the root process takes over: directories, lock, identity, password."""
