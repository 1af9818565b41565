"""A realm of Kerberos for tests: MIT's key distribution centre on a loopback port, with files of its own.

    with Realm(directory) as realm:                 # realm.config is a krb5.conf
        keytab = realm.add("alice")                 # a principal, and a file with its keys
        with realm.used(): ...                      # for what runs in this process

It needs no root and touches no file of the system. The tools are Debian's krb5-kdc, krb5-admin-server and krb5-user.
"""

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Self

from tests.eventually import WITHIN_SECONDS
from tests.harness import eventually_serves, free_ports, stop_process, tail

NAME = "EXAMPLE.COM"
TOOLS = ("kdb5_util", "kadmin.local", "krb5kdc", "kinit")
MODULE = "com.sun.security.auth.module.Krb5LoginModule"
KEYTAB_LOGIN = f"{MODULE} required useKeyTab=true storeKey=true doNotPrompt=true"
_PATH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"])

CONFIG = """\
[libdefaults]
default_realm = {realm}
dns_lookup_kdc = false
dns_lookup_realm = false
dns_canonicalize_hostname = false
rdns = false
udp_preference_limit = 1
clockskew = {skew}
forwardable = false
default_ccache_name = FILE:{directory}/nobodys.cache
default_keytab_name = FILE:{directory}/nobodys.keytab
default_rcache_name = file2:{directory}/replays
[realms]
{realm} = {{
    kdc = 127.0.0.1:{port}
}}
[domain_realm]
localhost = {realm}
127.0.0.1 = {realm}
"""
KDC_CONFIG = """\
[kdcdefaults]
kdc_listen = 127.0.0.1:{port}
kdc_tcp_listen = 127.0.0.1:{port}
[realms]
{realm} = {{
    database_name = {directory}/principal
    key_stash_file = {directory}/stash
    acl_file = {directory}/kadm5.acl
    max_life = 1h
    supported_enctypes = aes256-cts:normal
}}
"""


def missing_tools() -> str:
    """Why no realm can be made here; '' when one can."""
    missing = [tool for tool in TOOLS if shutil.which(tool, path=_PATH) is None]
    if missing:
        return f"needs MIT Kerberos ({', '.join(missing)}: Debian's krb5-kdc, krb5-admin-server, krb5-user)"
    if find_spec("gssapi") is None:
        return "needs the package gssapi (pip install 'headrace[gssapi]', with libkrb5-dev)"
    return ""


def server_settings(
    realm: "Realm", principal: str = "kafka/127.0.0.1", keytab: Path | None = None
) -> dict[str, str | int]:
    """A broker with a listener of GSSAPI."""
    keytab = keytab or realm.directory / f"{principal.replace('/', '-')}.keytab"
    return {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "GSSAPI",
        "listener.name.sasl_plaintext.gssapi.sasl.jaas.config": (
            f'{KEYTAB_LOGIN} keyTab="{keytab}" principal="{principal}@{NAME}";'
        ),
    }


def client_options(realm: "Realm", principal: str, keytab: Path) -> dict[str, str]:
    """Kafka's options of a client with keys."""
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "sasl.jaas.config": f'{KEYTAB_LOGIN} keyTab="{keytab}" principal="{principal}@{NAME}";',
    }


class Realm:
    """The realm EXAMPLE.COM."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        (self._port,) = free_ports(1)
        self.config = directory / "krb5.conf"
        self.strict_config = directory / "strict-krb5.conf"
        """The same for servers that forgive clocks no more than a second."""
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        directory, port = self.directory, self._port
        for path, skew in ((self.config, 300), (self.strict_config, 1)):
            path.write_text(CONFIG.format(realm=NAME, directory=directory, port=port, skew=skew))
        (directory / "kdc.conf").write_text(KDC_CONFIG.format(realm=NAME, directory=directory, port=port))
        self._run("kdb5_util", "create", "-s", "-r", NAME, "-P", "master-password")
        self._start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            stop_process(self._process)

    @property
    def environment(self) -> Mapping[str, str]:
        """The variables of processes that belong to the realm."""
        return {"KRB5_CONFIG": str(self.config), "KRB5_KDC_PROFILE": str(self.directory / "kdc.conf")}

    @contextmanager
    def used(self, *, is_strict: bool = False) -> Iterator[None]:
        """Has this process belong to the realm."""
        before = os.environ.get("KRB5_CONFIG")
        os.environ["KRB5_CONFIG"] = str(self.strict_config if is_strict else self.config)
        try:
            yield
        finally:
            if before is None:
                del os.environ["KRB5_CONFIG"]
            else:
                os.environ["KRB5_CONFIG"] = before

    def add(self, *principals: str) -> Path:
        """Makes principals with random keys; returns a file with the keys of all of them."""
        keytab = self.directory / f"{principals[0].replace('/', '-')}.keytab"
        for principal in principals:
            self._run("kadmin.local", "-r", NAME, "-q", f"addprinc -randkey {principal}")
        self.export(keytab, *principals)
        return keytab

    def export(self, keytab: Path, *principals: str, is_new: bool = False) -> None:
        """Writes the keys of principals into a file. `is_new`: new keys, so that others count no more."""
        keep = "" if is_new else "-norandkey "
        self._run("kadmin.local", "-r", NAME, "-q", f"ktadd -k {keytab} {keep}{' '.join(principals)}")

    def forget(self, principal: str) -> None:
        """Removes a principal."""
        self._run("kadmin.local", "-r", NAME, "-q", f"delprinc -force {principal}")

    def tickets(self, keytab: Path, principal: str) -> Path:
        """A cache with the tickets of a principal, as kinit leaves it."""
        cache = self.directory / f"{principal}.cache"
        self._run("kinit", "-c", str(cache), "-k", "-t", str(keytab), principal)
        return cache

    def _start(self) -> None:
        log = self.directory / "kdc.log"
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [self._tool("krb5kdc"), "-n", "-r", NAME, "-P", str(self.directory / "kdc.pid")],
                stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=self._variables(),
            )  # fmt: skip
        eventually_serves(self._process, self._answers, "the KDC", log=lambda: tail(log))

    def _answers(self) -> bool:
        socket.create_connection(("127.0.0.1", self._port), 1).close()
        return True

    def _run(self, tool: str, *arguments: str) -> None:
        done = subprocess.run(
            [self._tool(tool), *arguments], env=self._variables(), stdin=subprocess.DEVNULL, capture_output=True,
            text=True, timeout=WITHIN_SECONDS,
        )  # fmt: skip
        assert done.returncode == 0 and "does not exist" not in done.stderr, done.stdout + done.stderr

    def _variables(self) -> dict[str, str]:
        return {**os.environ, **self.environment}

    def _tool(self, name: str) -> str:
        found = shutil.which(name, path=_PATH)
        assert found is not None, missing_tools()
        return found
