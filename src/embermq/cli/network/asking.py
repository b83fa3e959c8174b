"""What the verbs for a cluster share: the options that say which one, and one line for each mistake.

@topic.command()
@asks
def names(output: Output, admin: Admin) -> None: ...
"""

import os
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Concatenate, NamedTuple, ParamSpec, TypeVar

import click

from embermq.cli.output import Output, output_option
from embermq.cli.store import BadInput
from embermq.client import Credentials
from embermq.client.admin import Admin
from embermq.errors import BrokerUnreachable, OptionInvalid

DEFAULT_NAME_SERVER = "127.0.0.1:9876"
P = ParamSpec("P")
F = TypeVar("F", bound=Callable[..., object])


def cluster_options(command: F) -> F:
    """Which cluster, and as whom."""
    options = [
        click.option(
            "-n",
            "--namesrv",
            metavar="HOST:PORT[;HOST:PORT]",
            envvar="NAMESRV_ADDR",
            default=DEFAULT_NAME_SERVER,
            show_default=True,
            show_envvar=True,
            help="Name servers.",
        ),
        click.option("--access-key", envvar="ROCKETMQ_ACCESS_KEY", show_envvar=True, help="Account, where ACL is on."),
        click.option("--secret-key", envvar="ROCKETMQ_SECRET_KEY", show_envvar=True, help="Its secret."),
        click.option("--tls", is_flag=True, help="Connect with TLS."),
    ]
    for option in reversed(options):
        command = option(command)
    return command


class NetworkAccess(NamedTuple):
    """Which cluster, and as whom."""

    name_servers: str
    credentials: Credentials | None
    tls: bool


def _credentials(access_key: object, secret_key: object) -> Credentials | None:
    """Both keys are given, or none."""
    if access_key is None and secret_key is None:
        return None
    if access_key is None or secret_key is None:
        raise OptionInvalid("--access-key", "an account is an access key and a secret key: give both")
    return Credentials(str(access_key), str(secret_key))


def connects(command: Callable[Concatenate[Output, NetworkAccess, P], None]) -> Callable[P, None]:
    """Give a verb the options of a cluster and `--output`; it receives an Output and an Access first."""

    @cluster_options
    @output_option
    @wraps(command)
    def with_access(output: Output, /, *args: P.args, **options: P.kwargs) -> None:
        credentials = _credentials(options.pop("access_key"), options.pop("secret_key"))
        access = NetworkAccess(str(options.pop("namesrv")), credentials, bool(options.pop("tls")))
        command(output, access, *args, **options)

    return with_access


def asks(command: Callable[Concatenate[Output, Admin, P], None]) -> Callable[P, None]:
    """The same with an Admin of that cluster, which is closed afterwards."""

    @connects
    @wraps(command)
    def with_admin(output: Output, access: NetworkAccess, /, *args: P.args, **options: P.kwargs) -> None:
        with Admin(access.name_servers, credentials=access.credentials, tls=access.tls) as admin:
            command(output, admin, *args, **options)

    return with_admin


def confirmed(question: str, is_sure: bool) -> None:
    """Ask before something is lost; without a terminal, --yes is needed."""
    if is_sure:
        return
    if not os.isatty(0):
        raise BadInput(f"{question} Say --yes to do it: there is no terminal to ask on.")
    if not click.confirm(question, err=True):
        raise click.Abort


yes_option = click.option("-y", "--yes", is_flag=True, help="Do not ask.")
cluster_option = click.option("-c", "--cluster", default="", metavar="NAME", help="Only this cluster.")
broker_option = click.option("-b", "--broker", default="", metavar="NAME|HOST:PORT", help="Only this broker.")


def fail() -> None:
    """Leave with the code that says: not done, or nothing found. What was collected is shown first."""
    click.get_current_context().exit(1)


def show_unreachable(output: Output, silent: Sequence[BrokerUnreachable]) -> None:
    """Brokers of which nothing is shown because they did not answer; the exit code is 1 then."""
    documents = [{"brokerName": one.broker, "address": one.address, "reason": one.reason} for one in silent]
    output.record("unreachable", documents)
    for one in silent:
        output.say(f"broker {one.broker} ({one.address}) is not among these: {one.reason}", style="bold")
    if silent:
        fail()
