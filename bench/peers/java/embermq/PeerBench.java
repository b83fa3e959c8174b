package embermq;

import com.alibaba.fastjson.JSON;
import java.io.PrintStream;
import java.net.InetSocketAddress;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentMap;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageExtBatch;
import org.apache.rocketmq.store.ConsumeQueue;
import org.apache.rocketmq.store.MessageExtBrokerInner;
import org.apache.rocketmq.store.PutMessageResult;

/**
 * RocketMQ's own speed, on its own defaults: ASYNC_FLUSH, 1 GiB files, index on, one thread putting.
 *
 * <pre>
 * PeerBench append DIR BODY MESSAGES ROUNDS   single puts, then batches of 256, in a fresh directory
 * PeerBench fill DIR BODY BYTES               puts until the log holds BYTES, then dies without closing
 * PeerBench load DIR                          time of load(): recovery as the abort file demands
 * PeerBench rebuild DIR                       time of load(), then of dispatch from the start of the log
 * </pre>
 *
 * Prints one JSON object. Each run ends by halting, so what `load` and `rebuild` leave behind is again a store
 * that was not closed.
 */
public final class PeerBench {
    private static final PrintStream OUT = System.out;
    private static final String TOPIC = "bench";
    private static final int QUEUES = 4;
    private static final int BATCH = 256;
    private static final int CHUNK = 1 << 16;

    /** The compiler goes on improving the put path for seconds; before that a rate says little. */
    private static final double WARM_UP_SECONDS = 5;

    private PeerBench() {
    }

    public static void main(String[] arguments) {
        System.setOut(System.err); // Standard output carries the result only.
        try {
            OUT.println(JSON.toJSONString(run(arguments)));
            OUT.flush();
            Runtime.getRuntime().halt(0);
        } catch (Exception problem) {
            problem.printStackTrace();
            Runtime.getRuntime().halt(1); // The store's threads would keep the process alive.
        }
    }

    private static Map<String, Object> run(String[] words) throws Exception {
        OpenedStore store = new OpenedStore(words[1], ReferenceStore.settings(Arrays.asList(words)), false);
        switch (words[0]) {
            case "append":
                return append(store, Integer.parseInt(words[2]), Integer.parseInt(words[3]),
                    Integer.parseInt(words[4]));
            case "fill":
                return fill(store, Integer.parseInt(words[2]), Long.parseLong(words[3]));
            case "load":
                return load(store);
            case "rebuild":
                return rebuild(store);
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    private static Map<String, Object> append(OpenedStore store, int bodyBytes, int messages, int rounds)
        throws Exception {
        open(store);
        Map<String, Object> figures = new LinkedHashMap<>();
        Tally tally = new Tally();
        long warmed = System.nanoTime();
        while (seconds(warmed) < WARM_UP_SECONDS) {
            putSingles(store, prepare(bodyBytes, tally.messages, CHUNK), tally);
        }
        List<Double> rates = new ArrayList<>();
        List<Double> settled = new ArrayList<>();
        for (int round = 0; round < rounds; round++) {
            MessageExtBrokerInner[] prepared = prepare(bodyBytes, tally.messages, messages);
            store.settle(); // Each round starts without a backlog of its predecessor,
            System.gc(); // and without its garbage.
            long began = System.nanoTime();
            putSingles(store, prepared, tally);
            rates.add(messages / seconds(began));
            store.settle();
            settled.add(messages / seconds(began));
        }
        figures.put("messages", messages);
        figures.put("messages_per_second", median(rates));
        figures.put("rounds", rates);
        figures.put("messages_per_second_until_dispatched", median(settled));
        figures.put("batch_256_messages_per_second", median(batchRates(store, bodyBytes, messages, rounds, tally)));
        tally.addTo(figures);
        figures.put("max_physical_offset", store.getMaxPhyOffset());
        return figures;
    }

    private static void putSingles(OpenedStore store, MessageExtBrokerInner[] prepared, Tally tally) {
        for (MessageExtBrokerInner message : prepared) {
            tally.add(store.putMessage(message));
        }
    }

    /** For information: one lock for 256 messages; the same batches come again, keys included. */
    private static List<Double> batchRates(OpenedStore store, int bodyBytes, int messages, int rounds, Tally tally)
        throws Exception {
        MessageExtBatch[] prepared = prepareBatches(bodyBytes);
        List<Double> rates = new ArrayList<>();
        for (int round = -1; round < rounds; round++) { // round -1 is the warm-up
            long began = System.nanoTime();
            for (int put = 0; put < messages / BATCH; put++) {
                MessageExtBatch batch = prepared[put % prepared.length];
                batch.setEncodedBuff(null);
                tally.add(store.putMessages(batch));
            }
            if (round >= 0) {
                rates.add(messages / BATCH * BATCH / seconds(began));
            }
            store.settle();
        }
        return rates;
    }

    private static Map<String, Object> fill(OpenedStore store, int bodyBytes, long bytes) throws Exception {
        open(store);
        Tally tally = new Tally();
        while (tally.bytes < bytes) {
            for (MessageExtBrokerInner message : prepare(bodyBytes, tally.messages, CHUNK)) {
                if (tally.bytes < bytes) {
                    tally.add(store.putMessage(message));
                }
            }
        }
        store.settle();
        Map<String, Object> figures = new LinkedHashMap<>();
        tally.addTo(figures);
        figures.put("max_physical_offset", store.getMaxPhyOffset());
        return figures;
    }

    private static Map<String, Object> load(OpenedStore store) {
        long began = System.nanoTime();
        boolean loaded = store.load();
        Map<String, Object> figures = new LinkedHashMap<>();
        figures.put("load_seconds", seconds(began));
        figures.put("loaded", loaded);
        describe(store, figures);
        return figures;
    }

    /** start() polls its own dispatcher once a second, so a closer watch is kept from here. */
    private static Map<String, Object> rebuild(OpenedStore store) throws Exception {
        Map<String, Object> figures = load(store);
        final long began = System.nanoTime();
        final double[] dispatched = new double[1];
        Thread watch = new Thread(() -> {
            try {
                store.settle();
                dispatched[0] = seconds(began);
            } catch (InterruptedException stopped) {
                throw new IllegalStateException(stopped);
            }
        });
        watch.start();
        store.start();
        watch.join();
        figures.put("dispatch_seconds", dispatched[0]);
        describe(store, figures);
        return figures;
    }

    private static void open(OpenedStore store) throws Exception {
        if (!store.load()) {
            throw new IllegalStateException("the store does not load");
        }
        store.start();
    }

    /** What a correct answer must repeat: the end of the log, and how much the queues hold. */
    private static void describe(OpenedStore store, Map<String, Object> figures) {
        long entries = 0;
        long lastPhysical = -1;
        for (ConcurrentMap<Integer, ConsumeQueue> queues : store.getConsumeQueueTable().values()) {
            for (ConsumeQueue queue : queues.values()) {
                entries += queue.getMaxOffsetInQueue() - queue.getMinOffsetInQueue();
                lastPhysical = Math.max(lastPhysical, queue.getMaxPhysicOffset());
            }
        }
        figures.put("max_physical_offset", store.getMaxPhyOffset());
        figures.put("queue_entries", entries);
        figures.put("queue_max_physical_offset", lastPhysical);
    }

    /** No two messages share a key: repeated ones would keep a small part of the index warm, unlike real use. */
    private static MessageExtBrokerInner[] prepare(int bodyBytes, long first, int count) {
        MessageExtBrokerInner[] prepared = new MessageExtBrokerInner[count];
        for (int at = 0; at < count; at++) {
            MessageExtBrokerInner message = new MessageExtBrokerInner();
            header(message, at % QUEUES);
            message.setBody(body(bodyBytes, at));
            MessageAccessor.setProperties(message, properties(first + at));
            message.setPropertiesString(MessageDecoder.messageProperties2String(message.getProperties()));
            prepared[at] = message;
        }
        return prepared;
    }

    private static MessageExtBatch[] prepareBatches(int bodyBytes) {
        MessageExtBatch[] prepared = new MessageExtBatch[64];
        for (int number = 0; number < prepared.length; number++) {
            List<Message> items = new ArrayList<>();
            for (int at = number * BATCH; at < (number + 1) * BATCH; at++) {
                Message item = new Message(TOPIC, body(bodyBytes, at));
                MessageAccessor.setProperties(item, properties(at));
                items.add(item);
            }
            prepared[number] = new MessageExtBatch();
            header(prepared[number], number % QUEUES);
            prepared[number].setBody(MessageDecoder.encodeMessages(items));
            MessageAccessor.setProperties(prepared[number], new HashMap<>());
        }
        return prepared;
    }

    private static void header(MessageExt message, int queueId) {
        message.setTopic(TOPIC);
        message.setQueueId(queueId);
        message.setBornTimestamp(System.currentTimeMillis());
        message.setBornHost(new InetSocketAddress("127.0.0.1", 50000));
        message.setStoreHost(new InetSocketAddress("127.0.0.1", 10911));
    }

    /** What a broker stores for a message with a tag and one key. */
    private static Map<String, String> properties(long number) {
        Map<String, String> properties = new HashMap<>();
        properties.put("UNIQ_KEY", String.format("7F0000010001639CFE2B%012X", number));
        properties.put("KEYS", "order-" + number);
        properties.put("TAGS", "paid");
        return properties;
    }

    private static byte[] body(int bytes, int number) {
        byte[] body = new byte[bytes];
        for (int at = 0; at < bytes; at++) {
            body[at] = (byte) (at * 31 + number);
        }
        return body;
    }

    private static double seconds(long began) {
        return (System.nanoTime() - began) / 1e9;
    }

    private static double median(List<Double> values) {
        List<Double> sorted = new ArrayList<>(values);
        Collections.sort(sorted);
        return sorted.get(sorted.size() / 2);
    }

    /** Sums over the answers: proof that every put was answered, and something to compare runs by. */
    private static final class Tally {
        private long messages;
        private long bytes;
        private long offsets;

        void add(PutMessageResult result) {
            if (!result.isOk()) {
                throw new IllegalStateException("put refused: " + result.getPutMessageStatus());
            }
            messages += result.getAppendMessageResult().getMsgNum();
            bytes += result.getAppendMessageResult().getWroteBytes();
            offsets += result.getAppendMessageResult().getWroteOffset();
        }

        void addTo(Map<String, Object> figures) {
            figures.put("stored_messages", messages);
            figures.put("stored_bytes", bytes);
            figures.put("offsets_sum", offsets);
        }
    }
}
