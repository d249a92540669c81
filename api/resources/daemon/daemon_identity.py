"""Which daemon this is: for programs on the same host that hold a process, a socket and an address for the same."""

import hashlib

import falcon

from api.auth.identity import Role
from api.errors import ApiError
from api.operations.intermediaries import through_proxy
from api.operations.operation import Call, Operation, json_of
from api.schemas import records as schemas
from api.server.client_address import is_local_socket, parse_address
from api.worker_context import Context
from supervisor.version import VERSION


def _from_this_host(req: falcon.Request) -> bool:
    """Neither from elsewhere nor through something that may speak for somebody elsewhere; a cookie is nobody else."""
    if through_proxy(req.env):
        return False
    if is_local_socket(req.env):
        return True
    client = parse_address(req.remote_addr)
    return client is not None and client.is_loopback


def get_identity(context: Context, call: Call) -> None:
    """What names the daemon."""
    if not _from_this_host(call.req):
        raise ApiError(403, "Only for programs on the daemon's host, without a proxy between")
    boot = context.boot
    fingerprint = hashlib.sha256(f"{boot.daemon_id} {boot.started_at}".encode()).hexdigest()
    call.answer(
        schemas.DaemonIdentity(
            version=VERSION,
            pid=context.daemon_pid,
            config_path=boot.config_path,
            data_dir=boot.data_dir,
            socket_path=boot.http_socket,
            fingerprint=fingerprint,
        )
    )


OPERATIONS = (
    Operation(
        method="GET",
        path="/api/daemon/identity",
        id="identifyDaemon",
        role=Role.VIEWER,
        summary="Identify the daemon (from the same host only).",
        handler=get_identity,
        answers={200: json_of(schemas.DaemonIdentity)},
        refusals=(403,),
        tag="daemon",
    ),
)
