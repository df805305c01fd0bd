"""The servers of both datacenters: each answers with the name of its own."""

import http.server
import socketserver
import threading

DATACENTERS = {"east": 8110, "west": 8120}


def serve(datacenter, port):
    class Answer(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            body = (datacenter + "\n").encode()
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
        daemon_threads = True
        request_queue_size = 128

        # Health checks hang up without a word.
        def handle_error(self, *_):
            pass

    threading.Thread(target=Server(("127.0.0.1", port), Answer).serve_forever).start()


for name, first in DATACENTERS.items():
    for offset in (2, 3, 4, 5):
        serve(name, first + offset)
