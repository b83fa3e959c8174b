"""The key-value configuration of name servers: texts by namespace and key. The loop's thread only.

Name servers do not talk to each other: a change goes to all of them; what is read comes from the first that answers.
"""

from embermq.client.admin.asking import Asking
from embermq.client.admin.bodies import table
from embermq.remoting import RequestCode, ResponseCode


class KvConfigs:
    """Questions about the key-value configuration."""

    def __init__(self, asking: Asking) -> None:
        self._asking = asking

    async def get(self, namespace: str, key: str) -> str | None:
        """A value; None if there is none."""
        header = {"namespace": namespace, "key": key}
        answer = await self._asking.name_server(
            RequestCode.GET_KV_CONFIG, header, expected=(ResponseCode.QUERY_NOT_FOUND,)
        )
        return answer.ext.get("value") if answer.code == 0 else None

    async def of_namespace(self, namespace: str) -> dict[str, str]:
        """All values of a namespace, by key; empty if there is no such namespace."""
        answer = await self._asking.name_server(
            RequestCode.GET_KVLIST_BY_NAMESPACE, {"namespace": namespace}, expected=(ResponseCode.QUERY_NOT_FOUND,)
        )
        if answer.code != 0:
            return {}
        return answer.read(lambda body: {key: str(value) for key, value in sorted(table(body, "table").items())})

    async def put(self, namespace: str, key: str, value: str) -> None:
        """Set a value on every name server."""
        header = {"namespace": namespace, "key": key, "value": value}
        await self._asking.every_name_server(RequestCode.PUT_KV_CONFIG, header)

    async def delete(self, namespace: str, key: str) -> None:
        """Delete a value on every name server, whether it is there or not."""
        await self._asking.every_name_server(RequestCode.DELETE_KV_CONFIG, {"namespace": namespace, "key": key})
