"""Clients that order, 40 times a second, and keep every order that was
acknowledged.

  load.py         order, and print once a second what became of it
  load.py check   compare what was acknowledged with what Redis has
"""

import collections
import http.client
import itertools
import sys
import threading
import time

import resp

KEPT = "/tmp/pharos-promote/acknowledged"

seen = collections.Counter()
lock = threading.Lock()
numbers = itertools.count()


def order(kept):
    while True:
        with lock:
            number = f"{time.time_ns()}-{next(numbers)}"
        result = "failed"
        try:
            connection = http.client.HTTPConnection("127.0.0.1", 8190, timeout=20)
            connection.request("PUT", "/orders/" + number)
            response = connection.getresponse()
            text = response.read().decode().strip()
            connection.close()
            if response.status == 201:
                result = text
        except (OSError, http.client.HTTPException):
            pass
        with lock:
            seen[result] += 1
            if result != "failed":
                kept.write(number + "\n")
                kept.flush()
        time.sleep(0.1)


def check():
    with open(KEPT) as kept:
        acknowledged = kept.read().split()
    redis = resp.primary()
    lost = [number for number in acknowledged if redis.command("SISMEMBER orders " + number) != "1"]
    print(f"{len(acknowledged)} orders acknowledged, {len(lost)} lost")
    sys.exit(bool(lost))


if sys.argv[1:] == ["check"]:
    check()
with open(KEPT, "a") as kept:
    for _ in range(4):
        threading.Thread(target=order, args=[kept], daemon=True).start()
    while True:
        time.sleep(1)
        with lock:
            now, seen = seen, collections.Counter()
        print(", ".join(f"{what} {count}" for what, count in sorted(now.items())), flush=True)
