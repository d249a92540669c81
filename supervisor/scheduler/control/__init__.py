"""Operations that API workers request over ``control.sock``, one module per subject.

Only the scheduler imports this room. An operation checks its arguments and answers; other rooms carry it out.
"""
