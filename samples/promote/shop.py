"""The first tier, in both datacenters: takes an order, writes it to Redis, and
says `created` when Redis has acknowledged it."""

import http.server
import socketserver
import threading
import time

import resp

DATACENTERS = {"east": 8198, "west": 8199}
# While a replica is promoted no server takes writes. An order waits that long.
PATIENCE_SECS = 10


def store(order):
    deadline = time.monotonic() + PATIENCE_SECS
    while True:
        try:
            return resp.primary().command("SADD orders " + order)
        except (OSError, resp.Refused):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def serve(datacenter, port):
    class Respond(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_PUT(self):
            try:
                store(self.path.rsplit("/", 1)[1])
                status = 201
            except (OSError, resp.Refused):
                status = 503
            body = (datacenter + "\n").encode()
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
        daemon_threads = True
        request_queue_size = 128

        # Health checks hang up without a request.
        def handle_error(self, *_):
            pass

    threading.Thread(target=Server(("127.0.0.1", port), Respond).serve_forever).start()


for name, port in DATACENTERS.items():
    serve(name, port)
