"""Certificates, tokens and kubeconfigs of the cluster, made anew for every run."""

import json
import secrets
from collections.abc import Mapping

from tests.kube.layout import API_PORT, API_SERVICE, CONTROL_PLANE, DOMAIN, Layout
from tests.kube.processes import run

USERS: Mapping[str, str] = {
    "admin": "system:masters",
    "system:kube-controller-manager": "",
    "system:kube-scheduler": "",
    "system:kube-proxy": "system:node-proxier",
}
"""Group by user; nodes come on top."""


def token_line(token: str, user: str, group: str) -> str:
    """Return one line of the API server's file of tokens."""
    return f'{token},{user},{user},"{group}"' if group else f"{token},{user},{user}"


def kubeconfig(server: str, certificate_authority: str, token: str) -> str:
    """Return a kubeconfig; JSON is YAML."""
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {"server": server, "certificate-authority": certificate_authority}}],
            "users": [{"name": "u", "user": {"token": token}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "c",
        }
    )


def create(layout: Layout) -> None:
    """Write everything that the processes of the cluster identify themselves with."""
    folder = layout.credentials
    folder.mkdir(parents=True, mode=0o700)
    names = ["kubernetes", "kubernetes.default", "kubernetes.default.svc", f"kubernetes.default.svc.{DOMAIN}"]
    addresses = [CONTROL_PLANE, API_SERVICE, "127.0.0.1"]
    alternatives = ",".join([*(f"DNS:{name}" for name in names), *(f"IP:{address}" for address in addresses)])
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "7"]
    ca, ca_key = str(folder / "ca.crt"), str(folder / "ca.key")
    run(["openssl", "req", "-x509", *key, "-subj", "/CN=shale-check", "-keyout", ca_key, "-out", ca])
    run(
        [
            "openssl",
            "req",
            "-x509",
            *key,
            "-subj",
            "/CN=kube-apiserver",
            "-CA",
            ca,
            "-CAkey",
            ca_key,
            "-addext",
            f"subjectAltName={alternatives}",
            "-addext",
            "basicConstraints=critical,CA:FALSE",
            "-keyout",
            str(folder / "apiserver.key"),
            "-out",
            str(folder / "apiserver.crt"),
        ]
    )
    run(["openssl", "genpkey", "-algorithm", "RSA", "-out", str(folder / "accounts.key")])
    run(["openssl", "pkey", "-in", str(folder / "accounts.key"), "-pubout", "-out", str(folder / "accounts.pub")])
    groups = {**USERS, **{f"system:node:{node.name}": "system:nodes" for node in layout.all_nodes()}}
    lines = []
    for user, group in groups.items():
        token = secrets.token_hex(16)
        lines.append(token_line(token, user, group))
        text = kubeconfig(f"https://{CONTROL_PLANE}:{API_PORT}", ca, token)
        layout.kubeconfig(user.rsplit(":", 1)[-1]).write_text(text)
    (folder / "tokens.csv").write_text("\n".join(lines) + "\n")
