"""Simulates schedules over a span of time, by the rules of the scheduler and without running any process."""
