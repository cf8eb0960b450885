"""The socket a service listens on, and its settings for the processes that share it."""

import socket

from divmf.serve.settings import PREFIX, ServeSettings


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens, before anything slow is done; a port that is taken is an error that says so."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        made = socket.socket(found[0], found[1])
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(found[4])
    except OSError as error:
        raise ValueError(
            f"cannot listen on {host}:{port} ({error.strerror}); choose another with --host and --port"
        ) from error
    made.listen(2048)
    made.set_inheritable(True)
    return made


def environment_of(settings: ServeSettings) -> dict[str, str]:
    """The settings as the environment of workers."""
    told = settings.model_dump()
    if settings.token is not None:
        told["token"] = settings.token.get_secret_value()
    return {f"{PREFIX}{name.upper()}": str(value) for name, value in told.items() if value is not None}
