"""The HTTP API: resources, schemas, authentication, streams and the files of the dashboard."""
