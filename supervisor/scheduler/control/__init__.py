"""Operations that API workers ask for over ``control.sock``, one module a subject.

Only the scheduler imports this room. An operation checks its arguments and answers; other rooms decide.
"""
