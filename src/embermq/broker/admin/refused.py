"""What this broker does not have yet, refused by name and never half done: access control (50, 51, 53). Whether there
is access control (52) is answered. The loop's thread."""

from collections.abc import Callable

from embermq.broker.admin.shapes import failed
from embermq.remoting import Call, Handler, NoHeader, Reply, RequestCode, ResponseCode, Row, request_name, write_json
from embermq.settings import BrokerSettings
from embermq.store.tables import DataVersion

_NO_ACL = "access control is not supported by this broker"
REFUSED: dict[int, tuple[int, str]] = {
    RequestCode.UPDATE_AND_CREATE_ACL_CONFIG: (ResponseCode.UPDATE_AND_CREATE_ACL_CONFIG_FAILED, _NO_ACL),
    RequestCode.DELETE_ACL_CONFIG: (ResponseCode.DELETE_ACL_CONFIG_FAILED, _NO_ACL),
    RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: (ResponseCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED, _NO_ACL),
}


class Refusals:
    """Answers that say what is missing."""

    def __init__(self, settings: Callable[[], BrokerSettings], address: Callable[[], str]) -> None:
        self._settings, self._address = settings, address

    def rows(self) -> list[Row]:
        note = "answered where access control is off, too"
        return [
            *(Row(code, NoHeader, _refuse(code), note=f"refused: {why}") for code, (_, why) in REFUSED.items()),
            Row(RequestCode.GET_BROKER_CLUSTER_ACL_INFO, NoHeader, self.acl_info, note=note),
        ]

    def acl_info(self, _call: Call[NoHeader]) -> Reply:
        settings = self._settings()
        return Reply(
            ext={
                "version": write_json(DataVersion().to_document()).decode(),
                "allAclFileVersion": "{}",
                "brokerName": settings.broker_name,
                "brokerAddr": self._address(),
                "clusterName": settings.cluster_name,
            }
        )


def _refuse(code: int) -> Handler:
    answer_code, why = REFUSED[code]

    def refuse(_call: Call[NoHeader]) -> Reply:
        return failed(f"{request_name(code)}: {why}", answer_code)

    return refuse
