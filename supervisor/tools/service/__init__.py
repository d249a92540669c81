"""The daemon as a service of a host: what its init system has to be told, for ``ringward service``."""
