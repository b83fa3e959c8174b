package embermq;

import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.UnknownHostException;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageExtBatch;
import org.apache.rocketmq.store.AppendMessageResult;
import org.apache.rocketmq.store.MessageExtBrokerInner;
import org.apache.rocketmq.store.PutMessageResult;

/** Puts as JSON: the message objects they describe, and results on the way back. */
final class Puts {
    private Puts() {
    }

    static MessageExtBrokerInner single(JSONObject put) throws UnknownHostException {
        MessageExtBrokerInner message = new MessageExtBrokerInner();
        header(message, put);
        message.setBody(body(put.get("body")));
        message.setFlag(put.getIntValue("flag"));
        message.setPreparedTransactionOffset(put.getLongValue("preparedTransactionOffset"));
        String given = put.getString("propertiesString");
        message.setPropertiesString(
            given != null ? given : MessageDecoder.messageProperties2String(message.getProperties()));
        return message;
    }

    /** Items carry body, flag and properties; all else comes from the batch. */
    static MessageExtBatch batch(JSONObject put) throws UnknownHostException {
        MessageExtBatch message = new MessageExtBatch();
        header(message, put);
        List<Message> items = new ArrayList<>();
        for (Object each : put.getJSONArray("items")) {
            JSONObject item = (JSONObject) each;
            Message inner = new Message(put.getString("topic"), body(item.get("body")));
            inner.setFlag(item.getIntValue("flag"));
            // The client's constructor leaves WAIT=true behind, which the caller may not have asked for.
            MessageAccessor.setProperties(inner, properties(item));
            items.add(inner);
        }
        message.setBody(MessageDecoder.encodeMessages(items));
        return message;
    }

    private static void header(MessageExt message, JSONObject put) throws UnknownHostException {
        message.setTopic(put.getString("topic"));
        message.setQueueId(put.getIntValue("queueId"));
        message.setSysFlag(put.getIntValue("sysFlag"));
        message.setReconsumeTimes(put.getIntValue("reconsumeTimes"));
        Long born = put.getLong("bornTimestamp");
        message.setBornTimestamp(born != null ? born : System.currentTimeMillis());
        message.setBornHost(host(put.getJSONArray("bornHost")));
        message.setStoreHost(host(put.getJSONArray("storeHost")));
        MessageAccessor.setProperties(message, properties(put));
    }

    /** Insertion order matters: the stored string follows the map's order, ties in a bucket included. */
    private static Map<String, String> properties(JSONObject put) {
        Map<String, String> found = new HashMap<>();
        JSONArray pairs = put.getJSONArray("properties");
        for (int at = 0; pairs != null && at < pairs.size(); at++) {
            found.put(pairs.getJSONArray(at).getString(0), pairs.getJSONArray(at).getString(1));
        }
        String[][] shorthand = {{"tags", "TAGS"}, {"keys", "KEYS"}, {"delay", "DELAY"}};
        for (String[] names : shorthand) {
            if (put.get(names[0]) != null) {
                found.put(names[1], put.getString(names[0]));
            }
        }
        return found;
    }

    /** {"hex": ...}, {"b64": ...} or {"len": n, "k": k}, whose byte i is (i*31+k)&255. */
    private static byte[] body(Object described) {
        JSONObject body = (JSONObject) described;
        if (body == null) {
            return new byte[0];
        }
        if (body.get("b64") != null) {
            return Base64.getDecoder().decode(body.getString("b64"));
        }
        String hex = body.getString("hex");
        byte[] bytes = new byte[hex != null ? hex.length() / 2 : body.getIntValue("len")];
        int k = body.getIntValue("k");
        for (int at = 0; at < bytes.length; at++) {
            bytes[at] = (byte) (hex != null ? Integer.parseInt(hex.substring(2 * at, 2 * at + 2), 16) : at * 31 + k);
        }
        return bytes;
    }

    private static InetSocketAddress host(JSONArray host) throws UnknownHostException {
        if (host == null) {
            return new InetSocketAddress(InetAddress.getByName("127.0.0.1"), 10911);
        }
        return new InetSocketAddress(InetAddress.getByName(host.getString(0)), host.getIntValue(1));
    }

    static Map<String, Object> answer(PutMessageResult result) {
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("status", result.getPutMessageStatus().name());
        answer.put("ok", result.isOk());
        AppendMessageResult append = result.getAppendMessageResult();
        if (append != null) {
            answer.put("appendStatus", append.getStatus().name());
            answer.put("wroteOffset", append.getWroteOffset());
            answer.put("wroteBytes", append.getWroteBytes());
            answer.put("msgId", append.getMsgId());
            answer.put("storeTimestamp", append.getStoreTimestamp());
            answer.put("logicsOffset", append.getLogicsOffset());
            answer.put("msgNum", append.getMsgNum());
        }
        return answer;
    }
}
