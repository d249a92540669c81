"""Runs in the database: writing, pages, filters, totals, samples and bulk changes.

The scheduler writes runs; API workers only read them. Other tables are modules of :mod:`store`, one noun each.
"""
