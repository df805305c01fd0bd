"""Shows Prometheus how far the Redis replica is behind its primary."""

import http.server

import resp


def page():
    try:
        nodes = [resp.Redis(port) for port in resp.NODES.values()]
        # The replica ("slave") first: what is written between the two reads
        # makes the lag larger, never smaller.
        nodes.sort(key=lambda node: node.replication()["role"], reverse=True)
        replica, primary = [node.replication() for node in nodes]
    except OSError:
        return "redis_replication_up 0\n"
    if [replica["role"], primary["role"]] != ["slave", "master"]:
        return "redis_replication_up 0\n"
    # Without replication there is no lag, and no series: that blocks. The offsets
    # of two histories say nothing: a primary that was restarted begins a new one.
    is_one_history = replica["master_replid"] == primary["master_replid"]
    if replica["master_link_status"] != "up" or not is_one_history:
        return "redis_replication_up 0\n"
    # Never clamped: what is negative is no data, and not nothing.
    lag = int(primary["master_repl_offset"]) - int(replica["slave_repl_offset"])
    return f"redis_replication_up 1\nredis_replication_lag_bytes {lag}\n"


class Respond(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = page().encode()
        self.send_response(200)
        self.send_header("content-type", "text/plain; version=0.0.4")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


http.server.ThreadingHTTPServer(("127.0.0.1", 8195), Respond).serve_forever()
