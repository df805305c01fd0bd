"""As much of the Redis protocol as the sample needs."""

import socket

NODES = {"east": 8196, "west": 8197}


class Refused(Exception):
    """Redis responded with an error."""


class Redis:
    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=2)
        self.file = self.socket.makefile("rb")

    def command(self, line):
        self.socket.sendall(line.encode() + b"\r\n")
        head = self.file.readline().decode().rstrip()
        if not head:
            raise ConnectionError("closed")
        if head[0] == "-":
            raise Refused(head[1:])
        if head[0] == "$":
            return self.file.read(int(head[1:]) + 2).decode()
        return head[1:]

    def replication(self):
        lines = self.command("INFO replication").splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line)


def primary():
    """A connection to the server that is primary now."""
    for port in NODES.values():
        try:
            redis = Redis(port)
            if redis.replication()["role"] == "master":
                return redis
        except OSError:
            pass
    raise ConnectionError("no primary")
