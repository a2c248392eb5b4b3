"""etcd, API server, controller manager, scheduler and the name server of the cluster."""

from pathlib import Path

from tests.kube import credentials
from tests.kube.cluster import Cluster
from tests.kube.layout import API_PORT, CONTROL_PLANE, DOMAIN, PODS, SERVICES, Layout
from tests.kube.processes import Processes, wait_for

READY_S = 180.0


def start(layout: Layout, processes: Processes) -> Cluster:
    """Start the control plane and return the cluster when the API server is ready."""
    credentials.create(layout)
    folder = layout.credentials
    clients, peers = "http://127.0.0.1:2379", "http://127.0.0.1:2380"
    processes.start(
        "etcd",
        [
            "etcd",
            "--data-dir",
            str(layout.state / "etcd"),
            "--listen-client-urls",
            clients,
            "--advertise-client-urls",
            clients,
            "--listen-peer-urls",
            peers,
            "--initial-advertise-peer-urls",
            peers,
            "--initial-cluster",
            f"default={peers}",
        ],
    )
    processes.start(
        "kube-apiserver",
        [
            _binary(layout, "kube-apiserver"),
            f"--etcd-servers={clients}",
            f"--bind-address={CONTROL_PLANE}",
            f"--advertise-address={CONTROL_PLANE}",
            f"--secure-port={API_PORT}",
            f"--service-cluster-ip-range={SERVICES}",
            f"--tls-cert-file={folder / 'apiserver.crt'}",
            f"--tls-private-key-file={folder / 'apiserver.key'}",
            f"--token-auth-file={folder / 'tokens.csv'}",
            f"--service-account-issuer=https://kubernetes.default.svc.{DOMAIN}",
            f"--service-account-signing-key-file={folder / 'accounts.key'}",
            f"--service-account-key-file={folder / 'accounts.pub'}",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            "--kubelet-preferred-address-types=InternalIP",
            "--allow-privileged=false",
        ],
    )
    cluster = Cluster(layout)
    wait_for("API server", READY_S, lambda: cluster.kubectl("get", "--raw", "/readyz") or None)
    processes.start(
        "kube-controller-manager",
        [
            _binary(layout, "kube-controller-manager"),
            f"--kubeconfig={layout.kubeconfig('kube-controller-manager')}",
            f"--root-ca-file={folder / 'ca.crt'}",
            f"--service-account-private-key-file={folder / 'accounts.key'}",
            f"--cluster-cidr={PODS}",
            "--use-service-account-credentials=true",
            "--leader-elect=false",
            "--bind-address=127.0.0.1",
        ],
    )
    processes.start(
        "kube-scheduler",
        [
            _binary(layout, "kube-scheduler"),
            f"--kubeconfig={layout.kubeconfig('kube-scheduler')}",
            "--leader-elect=false",
            "--bind-address=127.0.0.1",
        ],
    )
    processes.start("coredns", [_binary(layout, "coredns"), "-conf", str(_name_server_file(layout))])
    return cluster


def _name_server_file(layout: Layout) -> Path:
    file = layout.state / "Corefile"
    file.write_text(
        f"""{DOMAIN}:53 {{
  bind {CONTROL_PLANE}
  errors
  kubernetes {DOMAIN} {{
    kubeconfig {layout.kubeconfig("admin")}
    ttl 1
  }}
}}
"""
    )
    return file


def _binary(layout: Layout, name: str) -> str:
    return str(layout.cache / name)
