"""The checks of ``ringward doctor``, which change nothing."""
