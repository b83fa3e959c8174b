package embermq;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.BooleanSupplier;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Producers and consumers of one application; every topic and group begins with its prefix. Any thread may call it. */
final class Application {
    static final int SECONDS = 60;
    /** How long a step waits after it has all it wants, so that one message too many shows. */
    static final int MOMENT_MS = 500;

    private final String nameServer;
    private final String prefix;
    private final AtomicInteger instances = new AtomicInteger();

    Application(String nameServer, String prefix) {
        this.nameServer = nameServer;
        this.prefix = prefix;
    }

    /** A topic or group of this application. */
    String own(String name) {
        return prefix + "-" + name;
    }

    /** The same name in what is compared. */
    String plain(String name) {
        return name.replace(prefix + "-", "");
    }

    DefaultMQProducer producer() throws Exception {
        return started(new DefaultMQProducer(own("producers" + instances.incrementAndGet())));
    }

    DefaultMQProducer started(DefaultMQProducer producer) throws Exception {
        producer.setNamesrvAddr(nameServer);
        producer.setInstanceName("p" + instances.incrementAndGet());
        producer.setSendMsgTimeout(SECONDS * 1000);
        producer.start();
        // On a busy machine the client gives up on a route after three seconds of its own start: the first send must not.
        await(() -> {
            try {
                return !producer.fetchPublishMessageQueues("TBW102").isEmpty();
            } catch (MQClientException notYet) {
                return false;
            }
        });
        return producer;
    }

    Message message(String topic, String tag, String key, String body) {
        return new Message(own(topic), tag, key, body.getBytes(StandardCharsets.UTF_8));
    }

    DefaultMQPushConsumer consumer(String group, String topic, String expression) throws MQClientException {
        return subscribed(new DefaultMQPushConsumer(own(group)), own(topic), expression);
    }

    DefaultMQPushConsumer subscribed(DefaultMQPushConsumer consumer, String topic, String expression)
            throws MQClientException {
        consumer.setNamesrvAddr(nameServer);
        consumer.setInstanceName("c" + instances.incrementAndGet());
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, expression);
        return consumer;
    }

    String nameServer() {
        return nameServer;
    }

    /** A listener that takes everything. */
    static MessageListenerConcurrently into(Collection<String> seen) {
        return (messages, context) -> {
            messages.forEach(one -> seen.add(text(one)));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        };
    }

    static String text(Message message) {
        return new String(message.getBody(), StandardCharsets.UTF_8);
    }

    /** The names of a message's properties, which say what client and broker added. */
    static List<String> properties(MessageExt message) {
        return new ArrayList<>(new TreeSet<>(message.getProperties().keySet()));
    }

    static boolean await(BooleanSupplier holds) throws InterruptedException {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(SECONDS);
        while (!holds.getAsBoolean() && System.nanoTime() < deadline) {
            Thread.sleep(20);
        }
        return holds.getAsBoolean();
    }

    /** Waits for so many messages and a moment longer. */
    static List<String> settled(ConcurrentLinkedQueue<String> seen, int wanted) throws InterruptedException {
        await(() -> seen.size() >= wanted);
        Thread.sleep(MOMENT_MS);
        return new ArrayList<>(seen);
    }

    static List<String> sorted(Collection<String> words) {
        List<String> ordered = new ArrayList<>(words);
        ordered.sort(null);
        return ordered;
    }
}
