package embermq;

import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.nio.ByteBuffer;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentMap;
import java.util.function.Consumer;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.store.ConsumeQueue;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.SelectMappedBufferResult;

/** Everything a store holds, told twice: the log record by record, and each queue as a consumer pulls it. */
final class Dump {
    private static final int BLANK_MAGIC = 0xCBD43194;
    private static final char[] HEX = "0123456789abcdef".toCharArray();

    private Dump() {
    }

    static void everything(OpenedStore store, Consumer<Map<String, Object>> out) throws Exception {
        records(store, out);
        TreeMap<String, ConcurrentMap<Integer, ConsumeQueue>> topics = new TreeMap<>(store.getConsumeQueueTable());
        for (String topic : topics.keySet()) {
            for (int queueId : new TreeMap<>(topics.get(topic)).keySet()) {
                out.accept(queue(store, topic, queueId));
            }
        }
        Map<String, Object> bounds = line("bounds");
        bounds.put("minPhyOffset", store.getMinPhyOffset());
        bounds.put("maxPhyOffset", store.getMaxPhyOffset());
        bounds.put("dispatchBehindBytes", store.dispatchBehindBytes());
        out.accept(bounds);
    }

    /** The log from its first byte: records that reach no queue (prepared, rolled back) show up only here. */
    private static void records(OpenedStore store, Consumer<Map<String, Object>> out) throws Exception {
        long fileSize = store.getMessageStoreConfig().getMappedFileSizeCommitLog();
        long at = Math.max(0, store.getMinPhyOffset());
        while (at < store.getMaxPhyOffset()) {
            ByteBuffer head = copy(store.selectOneMessageByOffset(at, 8));
            if (head == null || head.getInt(4) == BLANK_MAGIC) {
                at = (at / fileSize + 1) * fileSize;
                continue;
            }
            ByteBuffer record = copy(store.selectOneMessageByOffset(at, head.getInt(0)));
            Map<String, Object> described = record(record);
            if (described == null) {
                described = line("unreadable");
                described.put("phy", at);
                out.accept(described);
                return;
            }
            out.accept(described);
            at += record.capacity();
        }
    }

    private static Map<String, Object> queue(OpenedStore store, String topic, int queueId) {
        Map<String, Object> queue = line("queue");
        queue.put("topic", topic);
        queue.put("queueId", queueId);
        queue.put("min", store.getMinOffsetInQueue(topic, queueId));
        queue.put("max", store.getMaxOffsetInQueue(topic, queueId));
        List<Long> physical = new ArrayList<>();
        List<String> odd = new ArrayList<>();
        long next = store.getMinOffsetInQueue(topic, queueId);
        while (next < store.getMaxOffsetInQueue(topic, queueId)) {
            GetMessageResult got = store.getMessage("dump", topic, queueId, next, 32, null);
            for (SelectMappedBufferResult view : got.getMessageMapedList()) {
                physical.add(view.getStartOffset());
            }
            if (got.getMessageMapedList().isEmpty()) {
                odd.add(next + " " + got.getStatus());
            }
            next = Math.max(next + 1, got.getNextBeginOffset());
            got.release();
        }
        queue.put("phys", physical);
        queue.put("odd", odd);
        return queue;
    }

    /** One record as the reference's own decoder reads it; null when it cannot. */
    static Map<String, Object> record(ByteBuffer record) throws Exception {
        MessageExt message = record == null ? null : MessageDecoder.decode(record.duplicate(), true, false);
        if (message == null) {
            return null;
        }
        Map<String, Object> told = line("record");
        told.put("phy", message.getCommitLogOffset());
        told.put("size", message.getStoreSize());
        told.put("msgId", message.getMsgId());
        told.put("topic", message.getTopic());
        told.put("queueId", message.getQueueId());
        told.put("queueOffset", message.getQueueOffset());
        told.put("flag", message.getFlag());
        told.put("sysFlag", message.getSysFlag());
        told.put("bornTimestamp", message.getBornTimestamp());
        told.put("bornHost", host(message.getBornHost()));
        told.put("storeTimestamp", message.getStoreTimestamp());
        told.put("storeHost", host(message.getStoreHost()));
        told.put("reconsumeTimes", message.getReconsumeTimes());
        told.put("preparedTransactionOffset", message.getPreparedTransactionOffset());
        told.put("bodyCrc", message.getBodyCRC());
        told.put("tags", message.getTags());
        told.put("keys", message.getKeys());
        told.put("properties", new TreeMap<>(message.getProperties()));
        byte[] body = message.getBody() == null ? new byte[0] : message.getBody(); // none is null, not empty
        told.put("bodyLen", body.length);
        told.put("bodyHash", hash(body));
        told.put("recordHash", hash(record.array()));
        return told;
    }

    static Map<String, Object> line(String kind) {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("is", kind);
        return line;
    }

    /** A private copy, so that no view keeps a mapped file alive. */
    static ByteBuffer copy(SelectMappedBufferResult view) {
        if (view == null) {
            return null;
        }
        byte[] bytes = new byte[view.getSize()];
        view.getByteBuffer().get(bytes);
        view.release();
        return ByteBuffer.wrap(bytes);
    }

    private static Object[] host(SocketAddress address) {
        InetSocketAddress host = (InetSocketAddress) address;
        return new Object[] {host.getAddress().getHostAddress(), host.getPort()};
    }

    private static String hash(byte[] bytes) throws Exception {
        StringBuilder text = new StringBuilder();
        for (byte each : MessageDigest.getInstance("SHA-256").digest(bytes)) {
            text.append(HEX[each >> 4 & 15]).append(HEX[each & 15]);
        }
        return text.toString();
    }
}
