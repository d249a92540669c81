"""The product's version, the only place where it is written."""

VERSION = "0.2.0.dev0"
