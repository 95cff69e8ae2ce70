"""Is the port free, and if not, who has it?"""

from __future__ import annotations

import errno
import socket

import psutil


class PortError(Exception):
    """The address cannot be listened on; the message is a sentence for the terminal."""


def require_free_port(host: str, port: int) -> None:
    """Nothing; raises PortError that names the port and, where the system tells, its holder."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except socket.gaierror as error:
        raise PortError(f"{host} is not an address of this machine ({error.strerror}).") from error
    with socket.socket(family, kind, protocol) as probe:
        # As the web server does: a port in TIME_WAIT is free, one that is listened on is not.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
            probe.listen(1)
        except OSError as error:
            raise PortError(_reason(error, host, port)) from error


def _reason(error: OSError, host: str, port: int) -> str:
    if error.errno == errno.EADDRINUSE:
        holder = find_holder(port)
        by = f" by {holder}" if holder else ""
        return f"Port {port} on {host} is taken{by}. Stop that, or choose another with --port."
    if error.errno == errno.EACCES:
        return f"Port {port} is for the system's own services. Choose one above 1023 with --port."
    if error.errno == errno.EADDRNOTAVAIL:
        return f"{host} is not an address of this machine. Give one of its own with --host."
    return f"Port {port} on {host} cannot be used: {error.strerror}."


def find_holder(port: int) -> str:
    """`name (process 123)` of who listens on the port, or "" where the system does not tell."""
    try:
        connections = psutil.net_connections(kind="tcp")
    except (psutil.Error, OSError):
        return ""
    for connection in connections:
        if (
            connection.status == psutil.CONN_LISTEN
            and connection.laddr
            and connection.laddr.port == port
            and connection.pid
        ):
            try:
                name = psutil.Process(connection.pid).name()
            except psutil.Error:
                return f"process {connection.pid}"
            return f"{name} (process {connection.pid})"
    return ""
