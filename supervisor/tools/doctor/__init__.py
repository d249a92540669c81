"""The checks of ``ringward doctor``. They change no state."""
