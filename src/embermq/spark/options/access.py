"""Options that say how a cluster is asked: account, TLS, namespace. Pure, but for `Tls.context`, which reads files.

They are the same of reads and writes. Names of options that hold a secret are such that Spark's own rule for what it
shows (`spark.redaction.regex`: secret, token, access key) leaves their values out of plans and of its pages; here they
are in no text of an object, and in no error.
"""

import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass

from embermq.client import Credentials
from embermq.errors import OptionInvalid
from embermq.spark.options.values import parse_flag, parse_text, parse_word

# Name, default, meaning.
ACCESS_OPTIONS: tuple[tuple[str, str, str], ...] = (
    ("accessKey", "", "With nameServer: the account, where brokers check accounts (ACL); needs secretKey."),
    ("secretKey", "", "Secret of the account. It is not shown in plans, pages, logs or errors."),
    ("securityToken", "", "A token that goes with the account."),
    ("tls", "false", "With nameServer: whether connections use TLS."),
    ("tlsCaFile", "the system's", "Certificates (PEM) that are trusted; a file that driver and workers have."),
    ("tlsCertFile", "", "The certificate (PEM) to show to brokers that ask for one; needs tlsKeyFile."),
    ("tlsKeyFile", "", "Its key (PEM, without a password)."),
    (
        "tlsVerify",
        "full",
        "`full`: certificates must be trusted and name the host that was asked; `ca`: trusted is enough, as for"
        " RocketMQ's own clients; `none`: any certificate will do.",
    ),
    (
        "namespace",
        "",
        "With nameServer: namespace of topics and groups. Names are given without it; other topics are not visible.",
    ),
)
_NAMES = tuple(name for name, _, _ in ACCESS_OPTIONS)
_NAMESPACE = re.compile(r"[a-zA-Z0-9_-]+")


@dataclass(frozen=True, slots=True)
class Tls:
    """How to speak TLS. Files are read where connections are made."""

    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    verify: str = "full"

    def context(self) -> ssl.SSLContext:
        """OptionInvalid if a file cannot be used here."""
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
        except OSError as problem:
            raise OptionInvalid("tlsCaFile", _no_use(problem), value=self.ca_file) from None
        if self.verify != "full":
            context.check_hostname = False
        if self.verify == "none":
            context.verify_mode = ssl.CERT_NONE
        if self.cert_file is not None:
            try:
                # A password would be asked for at the terminal; no one is there.
                context.load_cert_chain(self.cert_file, self.key_file, password=lambda: "")
            except OSError as problem:
                raise OptionInvalid("tlsCertFile", _no_use(problem), value=self.cert_file) from None
        return context


@dataclass(frozen=True, slots=True)
class ClusterAccess:
    """As whom, how and under which names. Goes to workers, so it holds plain values only."""

    credentials: Credentials | None = None
    tls: Tls | None = None
    namespace: str = ""


AS_NO_ONE = ClusterAccess()


def parse_access(given: Mapping[str, str]) -> ClusterAccess:
    """Of options by their documented names, of which there may be others; OptionInvalid."""
    return ClusterAccess(_credentials(given), _tls(given), _namespace(given))


def refuse_access(given: Mapping[str, str]) -> None:
    """OptionInvalid if there is any of these options: files are not asked as anyone."""
    for name in _NAMES:
        if name in given:
            raise OptionInvalid(name, "has no meaning without nameServer; leave it out")


def _credentials(given: Mapping[str, str]) -> Credentials | None:
    for name, other in (("accessKey", "secretKey"), ("secretKey", "accessKey"), ("securityToken", "accessKey")):
        if name in given and other not in given:
            raise OptionInvalid(name, f"an account is an access key and a secret key; {other} is missing")
    if "accessKey" not in given:
        return None
    for name in ("accessKey", "secretKey"):
        if not given[name].strip():
            raise OptionInvalid(name, "is empty; give the account's own, or leave both keys out")
    token = given.get("securityToken", "").strip()
    return Credentials(given["accessKey"].strip(), given["secretKey"].strip(), token or None)


def _tls(given: Mapping[str, str]) -> Tls | None:
    if not parse_flag("tls", given.get("tls", "false")):
        for name in _NAMES:
            if name.startswith("tls") and name != "tls" and name in given:
                raise OptionInvalid(name, "has no meaning without tls=true")
        return None
    for name, other in (("tlsCertFile", "tlsKeyFile"), ("tlsKeyFile", "tlsCertFile")):
        if name in given and other not in given:
            raise OptionInvalid(name, f"needs {other}")
    files = {
        name: parse_text(name, given[name]) for name in ("tlsCaFile", "tlsCertFile", "tlsKeyFile") if name in given
    }
    verify = parse_word("full", "ca", "none")("tlsVerify", given.get("tlsVerify", "full"))
    return Tls(files.get("tlsCaFile"), files.get("tlsCertFile"), files.get("tlsKeyFile"), verify)


def _namespace(given: Mapping[str, str]) -> str:
    if "namespace" not in given:
        return ""
    text = given["namespace"].strip()
    if not _NAMESPACE.fullmatch(text):
        raise OptionInvalid("namespace", "a namespace is expected: letters, digits, _ and -", value=text)
    return text


def _no_use(problem: OSError) -> str:
    reason = problem.reason if isinstance(problem, ssl.SSLError) else problem.strerror
    return f"no use on this machine: {reason or problem}"
