"""What the verbs for a cluster share: the options that say which one, and one line for each mistake.

@topic.command()
@asks
def names(output: Output, admin: Admin) -> None: ...
"""

import os
from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

import click

from embermq.cli.output import Output, output_option
from embermq.cli.store import BadInput
from embermq.client.admin import Admin
from embermq.client.credentials import Credentials
from embermq.errors import OptionInvalid

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


def admin_of(namesrv: str, account: tuple[object, object], tls: bool) -> Admin:
    """The administrator of the cluster that the options name."""
    return Admin(namesrv, credentials=credentials_of(account), tls=tls)


def credentials_of(account: tuple[object, object]) -> Credentials | None:
    """Access key and secret key, of which both are given or none."""
    if account == (None, None):
        return None
    if None in account:
        raise OptionInvalid("--access-key", "an account is an access key and a secret key: give both")
    return Credentials(str(account[0]), str(account[1]))


def asks(command: Callable[Concatenate[Output, Admin, P], None]) -> Callable[P, None]:
    """Give a verb the options of a cluster and `--output`; it receives an Output and an Admin first."""

    @cluster_options
    @output_option
    @wraps(command)
    def with_admin(output: Output, /, *args: P.args, **options: P.kwargs) -> None:
        account = options.pop("access_key"), options.pop("secret_key")
        with admin_of(str(options.pop("namesrv")), account, bool(options.pop("tls"))) as admin:
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
