"""Runs a Kubernetes on this machine: API server and controllers on loopback, and if a test needs pods, one node.

Everybody who has a token of the file below may use the API server. Its certificate is one that nobody checks.
"""

import contextlib
import json
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import yaml

from tests.end_to_end.support.processes import HarnessError, Process, free_port, run, scratch_directory, wait_until
from tests.kubernetes.programs import kubernetes
from tests.support.certificates import Authority
from tests.support.helm import helm

NODE: Final = "node1"
# The address of the node, which its pods reach. A kubelet refuses one of loopback.
NODE_ADDRESS: Final = "10.250.0.1"

_BRIDGE: Final = "kqp0"
_POD_BRIDGE: Final = "kqppods0"
_POD_NETWORK: Final = "10.244.0.0/24"
_SERVICE_NETWORK: Final = "10.96.0.0/16"
# User and group of each program's token, which is its name.
_USERS: Final = {
    "admin": ("admin", "system:masters"),
    "kube-controller-manager": ("system:kube-controller-manager", ""),
    "kube-scheduler": ("system:kube-scheduler", ""),
    "kube-proxy": ("system:kube-proxy", ""),
    "kubelet": (f"system:node:{NODE}", "system:nodes"),
}
_ADMISSION: Final = "pod-security.kubernetes.io/"
_READY_S: Final = 180


class Cluster:
    """A cluster from the start of its ``with`` block to the end. Its files are in a scratch directory."""

    def __init__(self) -> None:
        self.directory: Final = scratch_directory("kubernetes")
        self._processes: Final[dict[str, Process]] = {}
        self._api: Final = f"https://127.0.0.1:{free_port()}"
        self._has_node = False

    def __enter__(self) -> "Cluster":
        for name, (user, _) in _USERS.items():
            self._write(f"{name}.conf", _kubeconfig(self._api, token=name, user=user))
        tokens = (f'{name},{user},{name},"{group}"' for name, (user, group) in _USERS.items())
        self._write("tokens.csv", "\n".join(tokens))
        try:
            self._start_control_plane()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._has_node:
            self._remove_node()
        for process in self._processes.values():
            process.kill()
        shutil.rmtree(self.directory, ignore_errors=True)

    def kubectl(self, *arguments: str | Path) -> str:
        """Run kubectl as an administrator, and return what it prints. Raises HarnessError if it fails."""
        return run([kubernetes("kubectl"), "--kubeconfig", self.directory / "admin.conf", *arguments])

    def get(self, kind: str, *arguments: str) -> list[dict[str, Any]]:
        """Return all objects of a kind, or those that the arguments of ``kubectl get`` choose."""
        found = json.loads(self.kubectl("get", kind, "--output", "json", *arguments))
        items: list[dict[str, Any]] = found.get("items", [found])
        return items

    def helm(self, *arguments: str | Path) -> tuple[int, str, str]:
        """Run Helm as an administrator. Return the exit status, stdout and stderr."""
        return helm(*arguments, kubeconfig=self.directory / "admin.conf")

    def restricted_namespace(self, name: str) -> None:
        """Create a namespace that admits only pods of the profile ``restricted``, and warns of others."""
        self.kubectl("create", "namespace", name)
        labels = (f"{_ADMISSION}{mode}=restricted" for mode in ("enforce", "warn"))
        self.kubectl("label", "namespace", name, *labels)

    def add_node(self, images: Iterable[Path]) -> None:
        """Start a node that can run ``images``, which are archives. Only root may do this."""
        self._has_node = True
        run(["ip", "link", "add", _BRIDGE, "type", "bridge"])
        run(["ip", "address", "add", f"{NODE_ADDRESS}/24", "dev", _BRIDGE])
        run(["ip", "link", "set", _BRIDGE, "up"])
        self._start_containerd(images)
        self._start_kubelet()
        self._start(
            "kube-scheduler",
            kubernetes("kube-scheduler"),
            f"--kubeconfig={self._conf('kube-scheduler')}",
            "--leader-elect=false",
            "--secure-port=0",
        )
        proxying = ["--proxy-mode=nftables", f"--cluster-cidr={_POD_NETWORK}", f"--hostname-override={NODE}"]
        ports = [f"--{which}-bind-address=127.0.0.1:{free_port()}" for which in ("metrics", "healthz")]
        self._start(
            "kube-proxy", kubernetes("kube-proxy"), f"--kubeconfig={self._conf('kube-proxy')}", *proxying, *ports
        )
        self._wait("the node is ready", "wait", "--for=condition=Ready", f"node/{NODE}", "--timeout=1s")

    def kill(self, pod: dict[str, Any]) -> None:
        """End the process of a pod's only container with SIGKILL, which the kubelet then starts again."""
        (container,) = pod["status"]["containerStatuses"]
        number = container["containerID"].removeprefix("containerd://")
        if self._ctr("--namespace", "k8s.io", "task", "kill", "--signal", "SIGKILL", number) is None:
            raise HarnessError(f"containerd cannot end {number}")

    def _start_control_plane(self) -> None:
        store, peer = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
        urls = [f"--listen-client-urls={store}", f"--advertise-client-urls={store}", f"--listen-peer-urls={peer}"]
        first = [f"--initial-advertise-peer-urls={peer}", f"--initial-cluster=default={peer}"]
        self._start("etcd", "etcd", f"--data-dir={self.directory}/etcd", "--unsafe-no-fsync", *urls, *first)

        # One authority signs what the API server shows to the kubelet. The key of the same file signs tokens of pods.
        authority = Authority("kubelet")
        certificate, key = authority.issue("kube-apiserver").save(self.directory, "kubelet-client")
        authority.save(self.directory, "kubelet-ca")
        self._start(
            "kube-apiserver",
            kubernetes("kube-apiserver"),
            "--bind-address=127.0.0.1",
            f"--secure-port={self._api.rpartition(':')[2]}",
            f"--cert-dir={self.directory}/certificates",
            f"--etcd-servers={store}",
            f"--token-auth-file={self.directory}/tokens.csv",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            f"--service-cluster-ip-range={_SERVICE_NETWORK}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={certificate}",
            f"--service-account-signing-key-file={key}",
            f"--kubelet-client-certificate={certificate}",
            f"--kubelet-client-key={key}",
            "--kubelet-preferred-address-types=InternalIP",  # DNS does not know the node's name
            "--endpoint-reconciler-type=none",  # would publish another address of this machine
        )
        self._wait("the API server is ready", "get", "--raw", "/readyz")
        self._start(
            "kube-controller-manager",
            kubernetes("kube-controller-manager"),
            f"--kubeconfig={self._conf('kube-controller-manager')}",
            f"--service-account-private-key-file={key}",
            "--use-service-account-credentials",
            "--leader-elect=false",
            "--secure-port=0",
        )
        self._wait("the controllers work", "get", "serviceaccount", "default")

    def _start_containerd(self, images: Iterable[Path]) -> None:
        bridge = {
            "type": "bridge",
            "bridge": _POD_BRIDGE,
            "isGateway": True,
            "hairpinMode": True,
            "ipam": {
                "type": "host-local",
                "ranges": [[{"subnet": _POD_NETWORK}]],
                "routes": [{"dst": "0.0.0.0/0"}],
                "dataDir": f"{self.directory}/addresses",
            },
        }
        plugins = [bridge, {"type": "portmap", "capabilities": {"portMappings": True}}]
        (cni := self.directory / "cni").mkdir()
        (cni / "pods.conflist").write_text(json.dumps({"cniVersion": "0.4.0", "name": "pods", "plugins": plugins}))
        file = self._write(
            "containerd.toml",
            f"""
            version = 2
            root = "{self.directory}/containerd"
            state = "{self.directory}/containerd-state"
            [grpc]
              address = "{self._containerd}"
            [plugins."io.containerd.grpc.v1.cri"]
              sandbox_image = "localhost/pause:1"
              restrict_oom_score_adj = true  # this machine may lack CAP_SYS_RESOURCE
            [plugins."io.containerd.grpc.v1.cri".cni]
              bin_dir = "/usr/lib/cni"
              conf_dir = "{cni}"
            """,
        )
        self._start("containerd", "containerd", "--config", file)
        wait_until(lambda: self._ctr("version") is not None, timeout_s=_READY_S, what="containerd answers")
        for image in images:
            if self._ctr("--namespace", "k8s.io", "images", "import", str(image)) is None:
                raise HarnessError(f"containerd cannot import {image}")

    def _start_kubelet(self) -> None:
        settings = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": NODE_ADDRESS,
            "authentication": {
                "anonymous": {"enabled": False},
                "x509": {"clientCAFile": f"{self.directory}/kubelet-ca.pem"},
            },
            "authorization": {"mode": "AlwaysAllow"},
            "cgroupDriver": "cgroupfs",
            "failCgroupV1": False,
            "failSwapOn": False,
            "enforceNodeAllocatable": [],
            "containerRuntimeEndpoint": f"unix://{self._containerd}",
            "clusterDNS": [NODE_ADDRESS],  # where no DNS answers: the tests use addresses
            "healthzPort": free_port(),
            "makeIPTablesUtilChains": False,
            "localStorageCapacityIsolation": False,
        }
        self._start(
            "kubelet",
            kubernetes("kubelet"),
            f"--config={self._write('kubelet.yaml', yaml.safe_dump(settings))}",
            f"--kubeconfig={self._conf('kubelet')}",
            f"--root-dir={self.directory}/kubelet",
            f"--cert-dir={self.directory}/kubelet-certificates",
            f"--hostname-override={NODE}",
            f"--node-ip={NODE_ADDRESS}",
        )

    def _remove_node(self) -> None:
        """Remove the pods, whose processes and networks outlive containerd, and then the rest of the node."""
        with contextlib.suppress(HarnessError):
            self.kubectl("delete", "namespace", "--selector", f"{_ADMISSION}enforce", "--timeout=60s")
        for name in ("kubelet", "kube-proxy"):
            if name in self._processes:
                self._processes[name].kill()
        if self._ctr("version") is not None:
            for task in (self._ctr("--namespace", "k8s.io", "task", "list", "--quiet") or "").split():
                self._ctr("--namespace", "k8s.io", "task", "delete", "--force", task)
        if "containerd" in self._processes:
            self._processes["containerd"].kill()
        for line in reversed(Path("/proc/mounts").read_text(encoding="utf-8").splitlines()):
            if (mounted := line.split()[1]).startswith(f"{self.directory}/"):
                subprocess.run(["umount", "--lazy", mounted], check=False)
        for command in (
            ["ip", "link", "delete", _BRIDGE],
            ["ip", "link", "delete", _POD_BRIDGE],
            ["nft", "delete", "table", "ip", "kube-proxy"],
            ["nft", "delete", "table", "ip6", "kube-proxy"],
        ):
            subprocess.run(command, capture_output=True, check=False)
        for root in (one for name in ("kubepods", "k8s.io") for one in Path("/sys/fs/cgroup").rglob(name)):
            for group in (*sorted(root.rglob("*"), reverse=True), root):
                with contextlib.suppress(OSError):  # a file, or a group that still has processes
                    group.rmdir()

    @property
    def _containerd(self) -> Path:
        return self.directory / "containerd.sock"

    def _ctr(self, *arguments: str) -> str | None:
        """Run containerd's client. Return its output, or None if it fails."""
        done = subprocess.run(
            ["ctr", "--address", self._containerd, *arguments], capture_output=True, text=True, timeout=300, check=False
        )
        return done.stdout if done.returncode == 0 else None

    def _conf(self, name: str) -> Path:
        return self.directory / f"{name}.conf"

    def _write(self, name: str, text: str) -> Path:
        (path := self.directory / name).write_text(text, encoding="utf-8")
        path.chmod(0o600)
        return path

    def _start(self, name: str, program: str | Path, *arguments: str | Path) -> None:
        if shutil.which(program) is None:
            raise HarnessError(f"{program} is not on the PATH: make kubernetes installs it")
        self._processes[name] = Process([program, *arguments], log=self.directory / f"{name}.log")

    def _wait(self, what: str, *arguments: str) -> None:
        def works() -> bool:
            for name, process in self._processes.items():
                if not process.is_running:
                    raise HarnessError(f"{name} has ended:\n{process.log_tail()}")
            try:
                self.kubectl(*arguments)
            except HarnessError:
                return False
            return True

        wait_until(works, timeout_s=_READY_S, what=what, poll_s=0.2)


def _kubeconfig(api: str, *, token: str, user: str) -> str:
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": {"server": api, "insecure-skip-tls-verify": True}}],
            "users": [{"name": user, "user": {"token": token}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": user}}],
            "current-context": "test",
        }
    )
