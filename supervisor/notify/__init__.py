"""Who is told of what, and when: pure."""
