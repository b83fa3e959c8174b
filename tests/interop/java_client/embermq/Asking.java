package embermq;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.ConcurrentSkipListSet;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.impl.factory.MQClientInstance;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Questions about messages: queries, offsets by time, traces. */
final class Asking {
    private static final String TRACES = "RMQ_SYS_TRACE_TOPIC";

    private Asking() {
    }

    static void query(Application application, Map<String, Object> said) throws Exception {
        DefaultMQProducer producer = application.producer();
        String topic = application.own("queried");
        SendResult sent = producer.send(application.message("queried", "", "k-1 k-2", "found"));
        long now = System.currentTimeMillis();
        List<String> found = new ArrayList<>();
        Application.await(() -> {
            if (!found.isEmpty()) {
                return true;
            }
            try {
                QueryResult result = producer.queryMessage(topic, "k-2", 10, now - 60_000, now + 60_000);
                result.getMessageList().forEach(one -> found.add(Application.text(one)));
            } catch (MQClientException | InterruptedException problem) {
                return false;
            }
            return !found.isEmpty();
        });
        said.put("byKey", found);
        said.put("byOffsetId", Application.text(producer.viewMessage(topic, sent.getOffsetMsgId())));
        said.put("byUniqueId", Application.text(producer.viewMessage(topic, sent.getMsgId())));
        try {
            producer.queryMessage(topic, "k-3", 10, now - 60_000, now + 60_000);
        } catch (MQClientException nothing) {
            said.put("byOtherKey", nothing.getResponseCode() + " " + nothing.getErrorMessage());
        }
        said.put("bounds", Arrays.asList(
            producer.minOffset(sent.getMessageQueue()), producer.maxOffset(sent.getMessageQueue()),
            producer.searchOffset(sent.getMessageQueue(), now - 60_000),
            producer.searchOffset(sent.getMessageQueue(), now + 60_000)));
        said.put("earliestIsNear",
            Math.abs(producer.earliestMsgStoreTime(sent.getMessageQueue()) - now) < Application.SECONDS * 1000);
        producer.shutdown();
    }

    /** A group is set back to a time while it consumes: it gets what came after that time once more. */
    static void reset(Application application, Map<String, Object> said) throws Exception {
        DefaultMQProducer producer = application.producer();
        for (int i = 0; i < 4; i++) {
            producer.send(application.message("rewound", "", "", "before-" + i), Asking::byNumber, i);
        }
        Thread.sleep(3_000); // A time leads to the message nearest to it, before or after.
        long between = System.currentTimeMillis();
        for (int i = 0; i < 8; i++) {
            producer.send(application.message("rewound", "", "", "after-" + i), Asking::byNumber, i);
        }
        DefaultMQPushConsumer consumer = application.consumer("rewound", "rewound", "*");
        ConcurrentLinkedQueue<String> seen = new ConcurrentLinkedQueue<>();
        consumer.registerMessageListener(Application.into(seen));
        consumer.start();
        said.put("first", Application.sorted(Application.settled(seen, 12)));
        seen.clear();
        MQClientInstance client = producer.getDefaultMQProducerImpl().getmQClientFactory();
        MessageQueue queue = producer.fetchPublishMessageQueues(application.own("rewound")).get(0);
        String address = client.findBrokerAddressInPublish(queue.getBrokerName());
        Map<MessageQueue, Long> offsets = new HashMap<>();
        // A group is set back only in queues whose offset the broker knows.
        consumer.getDefaultMQPushConsumerImpl().persistConsumerOffset();
        Application.await(() -> {
            if (offsets.isEmpty()) {
                try {
                    offsets.putAll(client.getMQClientAPIImpl().invokeBrokerToResetOffset(
                        address, application.own("rewound"), application.own("rewound"), between, true, 10_000));
                } catch (Exception notYet) {
                    said.put("problem", String.valueOf(notYet));
                }
            }
            return !offsets.isEmpty();
        });
        if (!offsets.isEmpty()) {
            said.remove("problem");
        }
        said.put("offsets", new ArrayList<>(offsets.values()));
        said.put("again", Application.sorted(Application.settled(seen, 8)));
        consumer.shutdown();
        producer.shutdown();
    }

    private static MessageQueue byNumber(List<MessageQueue> queues, Message message, Object number) {
        return queues.get((Integer) number % queues.size());
    }

    static void trace(Application application, Map<String, Object> said) throws Exception {
        DefaultMQProducer producer =
            application.started(new DefaultMQProducer(application.own("traced-producers"), true, null));
        SendResult sent = producer.send(application.message("traced", "t", "traced-key", "traced"));
        DefaultMQPushConsumer consumer = application.subscribed(
            new DefaultMQPushConsumer(application.own("traced"), true, null), application.own("traced"), "*");
        ConcurrentLinkedQueue<String> seen = new ConcurrentLinkedQueue<>();
        consumer.registerMessageListener(Application.into(seen));
        consumer.start();
        Application.await(() -> !seen.isEmpty());
        ConcurrentSkipListSet<String> kinds = new ConcurrentSkipListSet<>();
        ConcurrentSkipListSet<String> traces = new ConcurrentSkipListSet<>();
        DefaultMQPushConsumer reader =
            application.subscribed(new DefaultMQPushConsumer(application.own("trace-readers")), TRACES, "*");
        reader.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt one : messages) {
                for (String trace : Application.text(one).split("\2")) {
                    String[] fields = trace.split("\1");
                    if (trace.contains(sent.getMsgId())) {
                        kinds.add(fields[0]);
                        traces.add(fields[0] + " " + fields.length + (fields[0].equals("Pub") ? " " + fields[2] : ""));
                    }
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        reader.start();
        Application.await(() -> kinds.containsAll(Moved.TRACES));
        said.put("traces", new ArrayList<>(traces));
        reader.shutdown();
        consumer.shutdown();
        producer.shutdown();
    }
}
