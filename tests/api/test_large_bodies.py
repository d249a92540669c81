"""Large bodies, which are looked at beside the loop."""

import falcon.testing
import gevent
import pytest

from api import body
from api.errors import ApiError
from api.schemas import NewToken


def test_others_go_on_meanwhile() -> None:
    """What is wrong with a million fields is found while the loop has turns, and not all of it is told."""
    fields = ",".join(f'"a{number}":1' for number in range(300_000))
    request = falcon.testing.create_req(
        method="POST", body="{" + fields + "}", headers={"Content-Type": "application/json"}
    )
    turns = []

    def beat() -> None:
        while True:
            turns.append(1)
            gevent.sleep(0.001)

    heart = gevent.spawn(beat)
    try:
        with pytest.raises(ApiError) as caught:
            body.decode(request, NewToken, required=True, limit_bytes=1 << 24)
    finally:
        heart.kill()
    assert caught.value.status == 422
    assert len(caught.value.errors or ()) == 10_000
    assert len(turns) > 5
