"""The matching process matches regular expressions with Python's ``re``, on hosts without google-re2."""
