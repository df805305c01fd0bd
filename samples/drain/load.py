"""Steady load on the edge, and once a second what became of it.

Web: 40 requests a second, each over a connection of its own. Chat: 10
conversations, each over one connection that stays; whoever is cut off between
two messages begins a new one, as people do.
"""

import collections
import http.client
import threading
import time

seen = collections.Counter()
lock = threading.Lock()


def count(*what):
    with lock:
        seen[what] += 1


def ask(connection):
    connection.request("GET", "/")
    response = connection.getresponse()
    text = response.read().decode().strip()
    if response.status != 200:
        raise http.client.HTTPException(response.status)
    return text


def web():
    while True:
        try:
            connection = http.client.HTTPConnection("127.0.0.1", 8090, timeout=5)
            count("web", ask(connection))
            connection.close()
        except (OSError, http.client.HTTPException):
            count("web", "failed")
        time.sleep(0.1)


def chat():
    connection = None
    while True:
        is_new = connection is None
        connection = connection or http.client.HTTPConnection("127.0.0.1", 8091, timeout=5)
        try:
            count("chat", ask(connection))
            time.sleep(0.2)
        except (OSError, http.client.HTTPException):
            # A connection that was closed before the message is no failure.
            count("chat", "failed" if is_new else "begun anew")
            connection.close()
            connection = None


for work in [web] * 4 + [chat] * 10:
    threading.Thread(target=work, daemon=True).start()
while True:
    time.sleep(1)
    with lock:
        now, seen = seen, collections.Counter()
    for service in ("web", "chat"):
        parts = ", ".join(f"{what} {n}" for (of, what), n in sorted(now.items()) if of == service)
        print(f"{service}: {parts}", end="   ")
    print(flush=True)
