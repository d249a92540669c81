"""Authentication, permissions, and the audit log.

The resources and the application import this package; it imports no resource.
"""
