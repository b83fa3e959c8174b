package embermq;

import com.alibaba.fastjson.JSON;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.protocol.heartbeat.MessageModel;

/**
 * Uses a broker as an application does, and prints one JSON line a step; the test compares.
 *
 * <p>ClientScript NAME_SERVER STEP..., where a step is the name of a method below.
 */
public final class ClientScript {
    private static final int SECONDS = 60;

    private final String nameServer;
    private int instances;

    private ClientScript(String nameServer) {
        this.nameServer = nameServer;
    }

    public static void main(String[] words) {
        ClientScript script = new ClientScript(words[0]);
        for (String step : Arrays.asList(words).subList(1, words.length)) {
            Map<String, Object> said = new TreeMap<>();
            said.put("step", step);
            try {
                script.run(step, said);
            } catch (Exception problem) {
                problem.printStackTrace();
                System.exit(1); // The client's threads would keep the process.
            }
            System.out.println(JSON.toJSONString(said));
            System.out.flush();
        }
        System.exit(0);
    }

    private void run(String step, Map<String, Object> said) throws Exception {
        switch (step) {
            case "produce":
                produce(said);
                break;
            case "concurrent":
                said.put("bodies", consumed("concurrent", "produced", "*", 40, false));
                break;
            case "tags":
                said.put("bodies", consumed("tagged", "produced", "odd || none", 10, false));
                break;
            case "orderly":
                orderly(said);
                break;
            case "broadcast":
                broadcast(said);
                break;
            case "delay":
                delay(said);
                break;
            case "retry":
                retry(said);
                break;
            case "deadLetter":
                deadLetter(said);
                break;
            case "query":
                query(said);
                break;
            case "sendMore":
                sendMore(said);
                break;
            case "resume":
                said.put("bodies", consumed("concurrent", "produced", "*", 5, false));
                break;
            default:
                throw new IllegalArgumentException(step);
        }
    }

    // -- sending -----------------------------------------------------------------------------------------------

    private DefaultMQProducer producer() throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("producers" + ++instances);
        producer.setNamesrvAddr(nameServer);
        producer.setInstanceName("p" + instances);
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

    private static Message message(String topic, String tag, String key, String body) {
        return new Message(topic, tag, key, body.getBytes(StandardCharsets.UTF_8));
    }

    private void produce(Map<String, Object> said) throws Exception {
        DefaultMQProducer producer = producer();
        List<String> statuses = new ArrayList<>();
        for (int i = 0; i < 10; i++) {
            SendResult sent = producer.send(message("produced", i % 2 == 1 ? "odd" : "even", "key-" + i, "sync-" + i));
            statuses.add(sent.getSendStatus().name());
        }
        CountDownLatch answered = new CountDownLatch(10);
        ConcurrentLinkedQueue<String> failed = new ConcurrentLinkedQueue<>();
        for (int i = 0; i < 10; i++) {
            Message one = message("produced", i % 2 == 1 ? "odd" : "even", "", "async-" + i);
            producer.send(one, new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    answered.countDown();
                }

                @Override
                public void onException(Throwable problem) {
                    failed.add(String.valueOf(problem));
                    answered.countDown();
                }
            });
        }
        said.put("answered", answered.await(SECONDS, TimeUnit.SECONDS));
        said.put("failed", new ArrayList<>(failed));
        for (int i = 0; i < 10; i++) {
            producer.sendOneway(message("produced", "plain", "", "oneway-" + i));
        }
        List<Message> batch = new ArrayList<>();
        for (int i = 0; i < 10; i++) {
            batch.add(message("produced", "plain", "", "batch-" + i));
        }
        SendResult sent = producer.send(batch);
        said.put("statuses", statuses);
        said.put("batch", sent.getSendStatus().name());
        said.put("batchIds", sent.getMsgId().split(",").length);
        producer.shutdown();
    }

    private void sendMore(Map<String, Object> said) throws Exception {
        DefaultMQProducer producer = producer();
        for (int i = 0; i < 5; i++) {
            producer.send(message("produced", "more", "", "more-" + i));
        }
        said.put("sent", 5);
        producer.shutdown();
    }

    // -- consuming ---------------------------------------------------------------------------------------------

    private DefaultMQPushConsumer consumer(String group, String topic, String expression) throws MQClientException {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(nameServer);
        consumer.setInstanceName("c" + ++instances);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, expression);
        return consumer;
    }

    private static String text(MessageExt message) {
        return new String(message.getBody(), StandardCharsets.UTF_8);
    }

    private static boolean await(BooleanSupplier holds) throws InterruptedException {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(SECONDS);
        while (!holds.getAsBoolean() && System.nanoTime() < deadline) {
            Thread.sleep(20);
        }
        return holds.getAsBoolean();
    }

    /** Waits for so many messages and a moment longer, so that one too many shows. */
    private static List<String> settled(ConcurrentLinkedQueue<String> seen, int wanted) throws InterruptedException {
        await(() -> seen.size() >= wanted);
        Thread.sleep(500);
        return new ArrayList<>(seen);
    }

    private List<String> consumed(String group, String topic, String expression, int wanted, boolean broadcast)
            throws Exception {
        DefaultMQPushConsumer consumer = consumer(group, topic, expression);
        if (broadcast) {
            consumer.setMessageModel(MessageModel.BROADCASTING);
        }
        ConcurrentLinkedQueue<String> seen = new ConcurrentLinkedQueue<>();
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(one -> seen.add(text(one)));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        List<String> bodies = settled(seen, wanted);
        consumer.shutdown();
        return bodies;
    }

    private void orderly(Map<String, Object> said) throws Exception {
        DefaultMQProducer producer = producer();
        for (int i = 0; i < 30; i++) {
            producer.send(message("ordered", "", "", (i % 3) + "-" + i), (queues, one, number) ->
                queues.get((Integer) number % queues.size()), i % 3);
        }
        producer.shutdown();
        DefaultMQPushConsumer consumer = consumer("ordered", "ordered", "*");
        ConcurrentLinkedQueue<String> seen = new ConcurrentLinkedQueue<>();
        ConcurrentLinkedQueue<String> refused = new ConcurrentLinkedQueue<>();
        consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            String body = text(messages.get(0));
            if (body.equals("1-13") && refused.isEmpty()) {
                refused.add(body);
                context.setSuspendCurrentQueueTimeMillis(100);
                return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT;
            }
            seen.add(body);
            return ConsumeOrderlyStatus.SUCCESS;
        });
        consumer.start();
        said.put("bodies", settled(seen, 30));
        said.put("refused", new ArrayList<>(refused));
        consumer.shutdown();
    }

    private void broadcast(Map<String, Object> said) throws Exception {
        DefaultMQProducer producer = producer();
        for (int i = 0; i < 6; i++) {
            producer.send(message("broadcast", "", "", "to-all-" + i));
        }
        producer.shutdown();
        said.put("first", consumed("broadcast", "broadcast", "*", 6, true));
        said.put("second", consumed("broadcast", "broadcast", "*", 6, true));
    }

    private void delay(Map<String, Object> said) throws Exception {
        DefaultMQPushConsumer consumer = consumer("delayed", "delayed", "*");
        ConcurrentLinkedQueue<Long> seen = new ConcurrentLinkedQueue<>();
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(one -> seen.add(System.currentTimeMillis()));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        DefaultMQProducer producer = producer();
        Message late = message("delayed", "", "", "late");
        late.setDelayTimeLevel(1);
        long sent = System.currentTimeMillis();
        said.put("status", producer.send(late).getSendStatus().name());
        producer.shutdown();
        consumer.start();
        await(() -> !seen.isEmpty());
        Thread.sleep(300);
        consumer.shutdown();
        said.put("times", seen.size());
        said.put("waitedMs", seen.isEmpty() ? -1 : seen.peek() - sent);
    }

    // -- messages that are not consumed ------------------------------------------------------------------------

    private void retry(Map<String, Object> said) throws Exception {
        DefaultMQProducer producer = producer();
        producer.send(message("retried", "", "retried-key", "once-more"));
        producer.shutdown();
        DefaultMQPushConsumer consumer = consumer("retried", "retried", "*");
        ConcurrentLinkedQueue<String> seen = new ConcurrentLinkedQueue<>();
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            MessageExt one = messages.get(0);
            seen.add(one.getTopic() + " " + text(one) + " " + one.getReconsumeTimes());
            context.setDelayLevelWhenNextConsume(1);
            return one.getReconsumeTimes() < 2
                ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        said.put("seen", settled(seen, 3));
        consumer.shutdown();
    }

    private void deadLetter(Map<String, Object> said) throws Exception {
        DefaultMQProducer producer = producer();
        producer.send(message("hopeless", "", "", "dead"));
        producer.shutdown();
        DefaultMQPushConsumer consumer = consumer("hopeless", "hopeless", "*");
        consumer.setMaxReconsumeTimes(1);
        ConcurrentLinkedQueue<String> seen = new ConcurrentLinkedQueue<>();
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(one -> seen.add(text(one) + " " + one.getReconsumeTimes()));
            context.setDelayLevelWhenNextConsume(1);
            return ConsumeConcurrentlyStatus.RECONSUME_LATER;
        });
        consumer.start();
        said.put("seen", settled(seen, 2));
        consumer.shutdown();
    }

    private void query(Map<String, Object> said) throws Exception {
        DefaultMQProducer producer = producer();
        SendResult sent = producer.send(message("queried", "", "k-1 k-2", "found"));
        long now = System.currentTimeMillis();
        List<String> found = new ArrayList<>();
        await(() -> {
            if (!found.isEmpty()) {
                return true;
            }
            try {
                QueryResult result = producer.queryMessage("queried", "k-2", 10, now - 60_000, now + 60_000);
                result.getMessageList().forEach(one -> found.add(text(one)));
            } catch (MQClientException | InterruptedException problem) {
                return false;
            }
            return !found.isEmpty();
        });
        said.put("byKey", found);
        said.put("byOffsetId", text(producer.viewMessage(sent.getOffsetMsgId())));
        said.put("byUniqueId", text(producer.viewMessage("queried", sent.getMsgId())));
        said.put("bounds", Arrays.asList(
            producer.minOffset(sent.getMessageQueue()), producer.maxOffset(sent.getMessageQueue()),
            producer.searchOffset(sent.getMessageQueue(), now + 60_000)));
        producer.shutdown();
    }
}
