"""Authentication, permissions, and the audit.

Resources and the application import this room; it imports no resource.
"""
