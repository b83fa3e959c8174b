package embermq;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.TransactionSendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Transactions: decided at once, or only when the broker asks. A body says what becomes of it. */
final class Transacting {
    private static final String[] BODIES = {"commit", "rollback", "asked-commit", "asked-rollback", "asked-twice-commit"};

    /** A broker may ask late on a busy machine: so many times the patience of other steps. */
    private static final int PATIENCE = 3;

    private Transacting() {
    }

    /** Decides by the body, and remembers what it was asked about. */
    private static final class Decisions implements TransactionListener {
        final Map<String, AtomicInteger> asked = new ConcurrentHashMap<>();
        final Map<String, List<String>> properties = new ConcurrentHashMap<>();

        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
            String body = Application.text(message);
            return body.startsWith("asked") ? LocalTransactionState.UNKNOW : decided(body);
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            String body = Application.text(message);
            int times = asked.computeIfAbsent(body, key -> new AtomicInteger()).incrementAndGet();
            properties.putIfAbsent(body, Application.properties(message));
            return body.startsWith("asked-twice") && times < 2 ? LocalTransactionState.UNKNOW : decided(body);
        }

        private static LocalTransactionState decided(String body) {
            return body.endsWith("commit")
                    ? LocalTransactionState.COMMIT_MESSAGE
                    : LocalTransactionState.ROLLBACK_MESSAGE;
        }
    }

    static void transactions(Application application, Map<String, Object> said) throws Exception {
        Decisions decisions = new Decisions();
        TransactionMQProducer producer = new TransactionMQProducer(application.own("transacting"));
        producer.setTransactionListener(decisions);
        application.started(producer);
        ConcurrentLinkedQueue<String> seen = new ConcurrentLinkedQueue<>();
        Map<String, Object> properties = new TreeMap<>();
        Map<String, String> states = new TreeMap<>();
        for (String body : BODIES) {
            Message message = application.message("transacted", "paid", "key-" + body, body);
            TransactionSendResult sent = producer.sendMessageInTransaction(message, null);
            states.put(body, sent.getSendStatus() + " " + sent.getLocalTransactionState());
        }
        DefaultMQPushConsumer consumer = application.consumer("transacted", "transacted", "paid");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt one : messages) {
                synchronized (properties) {
                    properties.put(Application.text(one), Application.properties(one));
                }
                seen.add(Application.text(one) + " " + one.getReconsumeTimes());
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        said.put("states", states);
        // The one that is rolled back when the broker asks is never seen: it was asked about.
        for (int times = 0; times < PATIENCE; times++) {
            Application.await(() -> seen.size() >= 3 && decisions.asked.containsKey("asked-rollback"));
        }
        said.put("seen", Application.sorted(Application.settled(seen, 3)));
        said.put("asked", new ArrayList<>(new TreeMap<>(decisions.asked).keySet()));
        said.put("askedTwice", decisions.asked.get("asked-twice-commit").get() >= 2);
        said.put("properties", properties);
        said.put("askedProperties", new TreeMap<>(decisions.properties));
        consumer.shutdown();
        producer.shutdown();
    }
}
