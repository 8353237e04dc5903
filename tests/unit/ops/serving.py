"""Small HTTP servers that stand in for Serve, the gateway and the like."""

import threading
from contextlib import contextmanager


class Answers:
    """Before ``BaseHTTPRequestHandler``: answers with whole bodies and logs nothing."""

    def reply(self, body, status=200):
        """Send bytes."""
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        """Say nothing."""


@contextmanager
def serving(server):
    """Serve in a thread within the block."""
    with server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
