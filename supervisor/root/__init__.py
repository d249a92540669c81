"""The root process: starts, stops and reaps runs, and moves their output into rings. No other room imports this one.

Every run depends on the root. So the root never

* imports a third-party package
* imports the scheduler, the API server, the store or the configuration
* loads a module after its start
* opens a database, reads the configuration, or parses TOML
* resolves the name of a host, a user or a group
* makes a network connection: all sockets that it creates are Unix sockets
* forks: processes come from posix_spawn(3), or from the zygote
* opens or syncs a file in the code of the control loop, of processes and of signals
* waits for a process that has not exited
* evaluates text as code, or loads pickled objects

``tests/root/test_never.py`` holds it to each line.
"""
