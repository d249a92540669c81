"""The steps of ``ringward up`` before the root process takes over: directories, locks, identity, password, orphans."""
