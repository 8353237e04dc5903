"""A web server whose answers are bytes, for what no well-behaved server sends; and look-ups that tests decide on."""

import asyncio
import gzip
import ssl
import time
from contextlib import asynccontextmanager, closing
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from app.apps.fetching.fetcher import Fetcher
from app.config.fetching import FetchConfig
from app.deadline import Deadline

HOST = "page.example"


def answer(body=b"", kind="text/html; charset=utf-8", status="200 OK", **headers):
    """Return a whole response; headers by their names with underscores, None leaves one out."""
    fields = {"Content-Type": kind, "Content-Length": str(len(body)), "Connection": "close"}
    fields |= {name.replace("_", "-"): value for name, value in headers.items()}
    lines = [f"{name}: {value}\r\n" for name, value in fields.items() if value is not None]
    return f"HTTP/1.1 {status}\r\n{''.join(lines)}\r\n".encode() + body


def packed(body):
    return answer(gzip.compress(body), Content_Encoding="gzip")


def redirect(to, status="302 Found"):
    return answer(status=status, Location=to)


class Site:
    """Answers paths from ``pages``: bytes, or a coroutine function that writes them itself."""

    def __init__(self):
        self.pages = {}
        self.requests = []
        self.left = asyncio.Event()
        self.port = 0

    async def serve(self, reader, writer):
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            self.requests.append(head)
            page = self.pages[head.split()[1]]
            if callable(page):
                await page(writer)
            else:
                writer.write(page)
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            self.left.set()
        finally:
            writer.close()

    def header(self, name):
        lines = self.requests[-1].splitlines()[1:]
        return next(line.split(": ", 1)[1] for line in lines if line.lower().startswith(name.lower() + ":"))


@asynccontextmanager
async def site(tls: ssl.SSLContext | None = None):
    served = Site()
    server = await asyncio.start_server(served.serve, "127.0.0.1", 0, ssl=tls)
    served.port = server.sockets[0].getsockname()[1]
    try:
        yield served
    finally:
        server.close()


class Lookups:
    """A resolver that gives the addresses it was told, the last ones for ever; it counts."""

    def __init__(self, *answers):
        self.answers = list(answers) or [["127.0.0.1"]]
        self.asked = []

    async def __call__(self, host, port):
        self.asked.append(host)
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


def self_signed(host, folder):
    """Write a key and a certificate of its own for a host into one file; return it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), now, now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    file = folder / "certificate.pem"
    plain = serialization.NoEncryption()
    file.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
        + certificate.public_bytes(serialization.Encoding.PEM)
    )
    return file


def config(served, **settings):
    """Return a configuration for a site on this machine, of which 127.0.0.1 alone may be reached."""
    local = {"allowed_hosts": ["*"], "allowed_ports": [served.port], "private_networks": ["127.0.0.1/32"]}
    return FetchConfig.model_validate(local | settings)


async def fetch(served, path="/", lookups=None, seconds=10, url=None, **settings):
    fetcher = Fetcher(config(served, **settings), lookups or Lookups())
    with closing(Deadline(time.monotonic() + seconds, "fetcher")) as deadline:
        return await fetcher.text_of(url or f"http://{HOST}:{served.port}{path}", deadline)
