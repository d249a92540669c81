"""Steps of ``ringward up`` before the root process takes over: directories, lock, identity, password."""
