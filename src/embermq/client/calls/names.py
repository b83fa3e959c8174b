"""What a name server is asked by clients: the route of a topic (105), all brokers (106)."""

from embermq.client.calls.caller import BrokerAddress, Caller, body_of
from embermq.client.calls.refusals import refused
from embermq.client.topic_route import ClusterRoute, TopicRoute, parse_cluster, parse_route
from embermq.remoting import Command, RequestCode, ResponseCode


async def topic_route(caller: Caller, to: BrokerAddress, topic: str, seconds: float) -> TopicRoute | None:
    """The route of a topic; None if the name server does not know it."""
    request = Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext={"topic": topic})
    answer = await caller.call(to, request, seconds, topic=topic)
    if answer.code == ResponseCode.TOPIC_NOT_EXIST:
        return None
    if answer.code != ResponseCode.SUCCESS:
        raise refused(to, request.code, answer, topic=topic)
    return body_of(to, request.code, answer, lambda body: parse_route(topic, body))


async def cluster_route(caller: Caller, to: BrokerAddress, seconds: float) -> ClusterRoute:
    """All brokers by name and cluster."""
    request = Command(RequestCode.GET_BROKER_CLUSTER_INFO)
    answer = await caller.call(to, request, seconds)
    if answer.code != ResponseCode.SUCCESS:
        raise refused(to, request.code, answer)
    return body_of(to, request.code, answer, parse_cluster)
