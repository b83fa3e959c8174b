"""`embermq cluster` and the verbs of `embermq broker`."""

import socket
import subprocess
import sys

import pytest

from embermq.cli.app import run
from embermq.remoting import RequestCode
from tests.support.probed_cluster import ProbedCluster
from tests.unit.cli.network.conftest import Command


def test_clusters_list_their_brokers(cluster: ProbedCluster, command: Command) -> None:
    (one,) = command("cluster list", as_json=True).json["brokers"]
    assert (one["cluster"], one["brokerName"], one["brokerId"]) == ("DefaultCluster", "broker-a", 0)
    assert (one["address"], one["version"], one["problem"]) == (cluster.address, "V4_9_8", None)
    assert 0 < one["diskUsedPercent"] <= 100
    assert cluster.address in command("cluster list --cluster DefaultCluster").out
    assert "did you mean DefaultCluster?" in command("cluster list --cluster DefaultClustr").mistake


def test_a_broker_that_does_not_answer_is_listed_with_its_problem(cluster: ProbedCluster, command: Command) -> None:
    """Its entry stays in the name server until that has missed it for two minutes."""
    gone = {"brokerName": "gone", "brokerAddr": "127.0.0.1:1", "clusterName": "Elsewhere", "brokerId": 0}
    register = gone | {"haServerAddr": "127.0.0.1:2", "compressed": "false", "bodyCrc32": 0}
    assert cluster.call_name_server(RequestCode.REGISTER_BROKER, register).code == 0
    try:
        listed = command("cluster list", as_json=True)
        assert listed.code == 1
        problems = {one["brokerName"]: one["problem"] for one in listed.json["brokers"]}
        assert problems["broker-a"] is None
        assert "broker gone (127.0.0.1:1)" in problems["gone"]
        assert "Connection refused" in command("cluster list").out
        assert command("cluster list --cluster DefaultCluster").code == 0
        silent = command("broker status --broker gone")
        assert (silent.code, silent.out, silent.err.count("\n")) == (1, "", 1)
    finally:
        assert cluster.call_name_server(RequestCode.UNREGISTER_BROKER, gone).code == 0


def test_name_servers_show_their_settings(cluster: ProbedCluster, command: Command) -> None:
    shown = command("cluster name-servers", as_json=True).json["nameServers"]
    assert shown[cluster.name_server]["orderMessageEnable"] == "false"
    assert "orderMessageEnable" in command("cluster name-servers").out


def test_settings_of_name_servers_are_changed(cluster: ProbedCluster, command: Command) -> None:
    for value in ("true", "false"):
        changed = command(f"cluster name-servers --set orderMessageEnable={value}", as_json=True).json["nameServers"]
        assert changed[cluster.name_server]["orderMessageEnable"] == value
    refused = command("cluster name-servers --set kvConfigPath=/tmp/elsewhere")
    assert (refused.code, refused.out) == (1, "")
    assert "NAME=VALUE is expected" in command("cluster name-servers --set orderMessageEnable").mistake


def test_texts_of_name_servers_are_set_shown_and_deleted(command: Command) -> None:
    assert command("cluster kv get NOTES", as_json=True).code == 1
    assert command("cluster kv set NOTES owner shop", as_json=True).json == {"values": {"owner": "shop"}}
    command("cluster kv set NOTES place", "hall 3; left")
    assert command("cluster kv get NOTES", as_json=True).json["values"] == {"owner": "shop", "place": "hall 3; left"}
    assert command("cluster kv get NOTES owner", as_json=True).json["values"] == {"owner": "shop"}
    assert "shop" in command("cluster kv get NOTES").out
    assert "--yes" in command("cluster kv delete NOTES owner").mistake
    for key in ("owner", "place"):
        assert command(f"cluster kv delete NOTES {key} --yes", as_json=True).json == {"deleted": key}
    gone = command("cluster kv get NOTES owner")
    assert (gone.code, gone.out) == (1, "nothing\n")


def test_the_lag_of_all_groups_on_a_broker(cluster: ProbedCluster, command: Command) -> None:
    for n in range(3):
        cluster.send("lag-topic", b"%d" % n)
    cluster.dispatched_somewhere("lag-topic", 3)
    command("group create lag-group")
    cluster.commit("lag-group", "lag-topic", 0, 0)
    found = command("broker lag broker-a", as_json=True).json
    queues = [one for one in found["queues"] if (one["group"], one["topic"]) == ("lag-group", "lag-topic")]
    assert sum(one["lag"] for one in queues) == 3
    assert {one["brokerName"] for one in queues} == {"broker-a"}
    assert found["lag"] >= 3
    some = command("broker lag broker-a --over 1", as_json=True).json["queues"]
    assert some
    assert all(one["lag"] >= 1 for one in some)
    assert "lag-group" in command("broker lag broker-a --over 1").out
    assert command("broker lag broker-a --orderly", as_json=True).json["queues"] == []
    assert "did you mean broker-a?" in command("broker lag brokera").mistake


def test_the_status_of_brokers(cluster: ProbedCluster, command: Command) -> None:
    whole = command("broker status", as_json=True).json["brokers"]["broker-a"]
    assert whole["brokerVersionDesc"] == "V4_9_8"
    some = command(f"broker status --broker {cluster.address} --match versiondesc", as_json=True).json
    assert some == {"brokers": {"broker-a": {"brokerVersionDesc": "V4_9_8"}}}
    assert "V4_9_8" in command("broker status --broker broker-a").out


def test_settings_of_brokers_are_shown_and_changed(command: Command) -> None:
    shown = command("broker config get brokerName traceOn", as_json=True).json["brokers"]["broker-a"]
    assert shown == {"brokerName": "broker-a", "traceOn": "true"}
    assert command("broker config update traceOn=false --broker broker-a").code == 0
    assert command("broker config get traceOn", as_json=True).json["brokers"]["broker-a"] == {"traceOn": "false"}
    assert command("broker config update traceOn=true").code == 0
    refused = command("broker config update brokerName=other")
    assert (refused.code, refused.out) == (1, "")
    assert "cannot be changed while the broker runs" in refused.err


def test_brokers_clean_up(command: Command) -> None:
    cleaned = command("broker clean queues topics log", as_json=True).json["brokers"]
    assert [one["cleaned"] for one in cleaned] == ["queues", "topics", "log"]


def test_a_broker_is_taken_out_and_put_back(command: Command) -> None:
    command("topic create w-topic")
    off = command("broker writable broker-a off", as_json=True).json
    assert (off["writable"], off["topics"] > 0) == (False, True)
    assert command("topic route w-topic", as_json=True).json["brokers"][0]["perm"] == 4
    assert "writable now" in command("broker writable broker-a on").out
    assert command("topic route w-topic", as_json=True).json["brokers"][0]["perm"] == 6


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("broker status --broker broker-x", "did you mean broker-a?"),
        ("broker config get trasOn", "trasOn (did you mean traceOn?)"),
        ("broker config update trasOn=1", "trasOn (did you mean traceOn?)"),
        ("broker config update traceOn", "NAME=VALUE is expected"),
        ("broker config gt traceOn", "did you mean get?"),
        ("broker clean everything", "'everything' is not one of"),
        ("broker statu", "did you mean status?"),
        ("broker --store x status", "options of a verb stand after it: embermq broker status"),
        ("broker writable broker-x off", "did you mean broker-a?"),
    ],
)
def test_a_mistake_is_one_line_and_2(line: str, said: str, command: Command) -> None:
    assert said in command(line).mistake


@pytest.mark.parametrize("words", ["topic list", "group list", "message lag g", "cluster list", "broker status"])
def test_name_servers_that_do_not_answer_are_2(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    assert run([*words.split(), "-n", f"127.0.0.1:{port}"]) == 2
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)
    assert f"no name server answers (cannot connect to 127.0.0.1:{port}: Connection refused)" in said.err


def test_an_address_that_is_none_is_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["topic", "list", "-n", "127.0.0.1:x"]) == 2
    assert "an address looks like 127.0.0.1:9876" in capsys.readouterr().err


@pytest.mark.slow(2)
def test_network_nouns_load_nothing_compiled(cluster: ProbedCluster) -> None:
    script = (
        "import sys; from embermq.cli.app import run\n"
        f"words = ['-n', {cluster.name_server!r}, '--output', 'json']\n"
        "lines = ('topic list', 'group list', 'cluster list', 'broker status', 'message find --topic TBW102 --key k')\n"
        "codes = [run([*line.split(), *words]) for line in lines]\n"
        "print([name for name in ('numpy', 'numba', 'pyspark', 'lark') if name in sys.modules], codes, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stderr == "[] [0, 0, 0, 0, 1]\n"


@pytest.mark.slow
def test_the_environment_names_the_name_servers(cluster: ProbedCluster) -> None:
    command = [sys.executable, "-m", "embermq.cli", "topic", "list", "--all"]
    environment = {"NAMESRV_ADDR": cluster.name_server, "PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "TBW102" in done.stdout
