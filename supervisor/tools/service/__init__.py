"""The daemon as a service of a host: the files and commands of its init system, for ``ringward service``."""
