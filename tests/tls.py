"""TLS in front of a PostgreSQL server that has none, with certificates made for the test.

PostgreSQL's protocol asks for TLS with a message of eight bytes before anything else. The server's answer is `S`, and
the handshake follows, or `N`. The proxy does that and passes on what is inside.
"""

from __future__ import annotations

import contextlib
import datetime
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

HOST = "localhost"
_REQUEST_BYTES = 8


def make_certificate(folder: Path, name: str) -> Path:
    """A certificate for `localhost` that signs itself, with its key in the same file."""
    key = ec.generate_private_key(ec.SECP256R1())
    called = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.timezone.utc)
    day = datetime.timedelta(days=1)
    made = (
        x509.CertificateBuilder()
        .subject_name(called)
        .issuer_name(called)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - day)
        .not_valid_after(now + day)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(HOST)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    plain = serialization.NoEncryption()
    secret = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    path = folder / f"{name}.pem"
    path.write_bytes(secret + made.public_bytes(serialization.Encoding.PEM))
    return path


@contextlib.contextmanager
def proxy(behind: Path, certificate: Path | None) -> Iterator[int]:
    """The port of a proxy for a Unix socket; without a certificate it says that it has no TLS."""
    listener = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=_accept, args=(listener, behind, certificate), daemon=True).start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.close()


def _accept(listener: socket.socket, behind: Path, certificate: Path | None) -> None:
    # Closing the listener ends it.
    with contextlib.suppress(OSError):
        while True:
            client, _ = listener.accept()
            threading.Thread(target=_serve, args=(client, behind, certificate), daemon=True).start()


def _serve(client: socket.socket, behind: Path, certificate: Path | None) -> None:
    # A client that does not like the certificate hangs up.
    with contextlib.suppress(OSError), client:
        client.recv(_REQUEST_BYTES)
        if certificate is None:
            client.sendall(b"N")
            return
        client.sendall(b"S")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        with context.wrap_socket(client, server_side=True) as inside, socket.socket(socket.AF_UNIX) as server:
            server.connect(str(behind))
            back = threading.Thread(target=_pass_on, args=(server, inside), daemon=True)
            back.start()
            _pass_on(inside, server)
            back.join()


def _pass_on(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while content := source.recv(1 << 16):
            sink.sendall(content)
        sink.shutdown(socket.SHUT_WR)
