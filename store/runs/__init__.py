"""Runs in the database: writing, pages, filters, totals, samples and bulk changes.

The scheduler writes runs; API workers only read them. Each of the other tables has a module in :mod:`store`.
"""
