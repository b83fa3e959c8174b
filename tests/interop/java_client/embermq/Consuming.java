package embermq;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Every way to consume. */
final class Consuming {
    private static final String BIG = String.join("", java.util.Collections.nCopies(2_000, "0123456789"));

    private Consuming() {
    }

    static void concurrent(Application application, Map<String, Object> said) throws Exception {
        DefaultMQPushConsumer consumer = application.consumer("concurrent", "produced", "*");
        ConcurrentLinkedQueue<String> seen = new ConcurrentLinkedQueue<>();
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt one : messages) {
                String body = Application.text(one);
                if (body.equals("sync-1") || body.equals("batch-1")) {
                    synchronized (said) {
                        said.put("properties of " + body, Application.properties(one));
                    }
                }
                seen.add(body);
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        List<String> bodies = Application.sorted(Application.settled(seen, 40));
        consumer.shutdown();
        said.put("bodies", bodies);
    }

    private static List<String> consumed(Application application, String group, String expression, int wanted)
            throws Exception {
        DefaultMQPushConsumer consumer = application.consumer(group, "produced", expression);
        ConcurrentLinkedQueue<String> seen = new ConcurrentLinkedQueue<>();
        consumer.registerMessageListener(Application.into(seen));
        consumer.start();
        List<String> bodies = Application.settled(seen, wanted);
        consumer.shutdown();
        return Application.sorted(bodies);
    }

    static void tags(Application application, Map<String, Object> said) throws Exception {
        said.put("bodies", consumed(application, "tagged", "odd || none", 10));
    }

    /** After a restart of the broker: the group of `concurrent` goes on where it was. */
    static void resume(Application application, Map<String, Object> said) throws Exception {
        said.put("bodies", consumed(application, "concurrent", "*", 5));
    }

    static void orderly(Application application, Map<String, Object> said) throws Exception {
        DefaultMQProducer producer = application.producer();
        for (int i = 0; i < 30; i++) {
            producer.send(application.message("ordered", "", "", (i % 3) + "-" + i), (queues, one, number) ->
                queues.get((Integer) number % queues.size()), i % 3);
        }
        producer.shutdown();
        DefaultMQPushConsumer consumer = application.consumer("ordered", "ordered", "*");
        ConcurrentLinkedQueue<String> seen = new ConcurrentLinkedQueue<>();
        ConcurrentLinkedQueue<String> refused = new ConcurrentLinkedQueue<>();
        consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            String body = Application.text(messages.get(0));
            if (body.equals("1-13") && refused.isEmpty()) {
                refused.add(body);
                context.setSuspendCurrentQueueTimeMillis(100);
                return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT;
            }
            seen.add(body);
            return ConsumeOrderlyStatus.SUCCESS;
        });
        consumer.start();
        List<String> bodies = Application.settled(seen, 30);
        consumer.shutdown();
        for (int queue = 0; queue < 3; queue++) {
            String begin = queue + "-";
            said.put("queue " + queue,
                bodies.stream().filter(body -> body.startsWith(begin)).collect(Collectors.toList()));
        }
        said.put("refused", new ArrayList<>(refused));
    }

    static void broadcast(Application application, Map<String, Object> said) throws Exception {
        DefaultMQProducer producer = application.producer();
        for (int i = 0; i < 6; i++) {
            producer.send(application.message("broadcast", "", "", "to-all-" + i));
        }
        producer.shutdown();
        List<DefaultMQPushConsumer> members = new ArrayList<>();
        List<ConcurrentLinkedQueue<String>> seen = new ArrayList<>();
        for (int member = 0; member < 2; member++) {
            DefaultMQPushConsumer consumer = application.consumer("broadcast", "broadcast", "*");
            Moved.toEveryMember(consumer);
            seen.add(new ConcurrentLinkedQueue<>());
            consumer.registerMessageListener(Application.into(seen.get(member)));
            consumer.start();
            members.add(consumer);
        }
        for (int member = 0; member < 2; member++) {
            said.put("member " + member, Application.sorted(Application.settled(seen.get(member), 6)));
        }
        members.forEach(DefaultMQPushConsumer::shutdown);
    }

    static void delay(Application application, Map<String, Object> said) throws Exception {
        DefaultMQPushConsumer consumer = application.consumer("delayed", "delayed", "*");
        ConcurrentLinkedQueue<Long> seen = new ConcurrentLinkedQueue<>();
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            synchronized (said) {
                said.put("properties", Application.properties(messages.get(0)));
            }
            messages.forEach(one -> seen.add(System.currentTimeMillis()));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        DefaultMQProducer producer = application.producer();
        Message late = application.message("delayed", "", "", "late");
        late.setDelayTimeLevel(1);
        long sent = System.currentTimeMillis();
        said.put("status", producer.send(late).getSendStatus().name());
        producer.shutdown();
        consumer.start();
        Application.await(() -> !seen.isEmpty());
        Thread.sleep(Application.MOMENT_MS);
        consumer.shutdown();
        said.put("times", seen.size());
        said.put("afterItsTime", !seen.isEmpty() && seen.peek() - sent >= 950);
    }

    /** A consumer that asks: 4.9 by PULL_MESSAGE, 5.x by LITE_PULL_MESSAGE. One message is large enough to be compressed. */
    static void litePull(Application application, Map<String, Object> said) throws Exception {
        DefaultMQProducer producer = application.producer();
        for (int i = 0; i < 5; i++) {
            producer.send(application.message("polled", "", "", "polled-" + i));
        }
        producer.send(application.message("polled", "", "", BIG));
        producer.shutdown();
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(application.own("polled"));
        consumer.setNamesrvAddr(application.nameServer());
        consumer.setInstanceName("lite");
        consumer.setAutoCommit(false);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(application.own("polled"), "*");
        consumer.start();
        List<String> seen = new ArrayList<>();
        long deadline = System.currentTimeMillis() + Application.SECONDS * 1000;
        while (seen.size() < 6 && System.currentTimeMillis() < deadline) {
            consumer.poll(500).forEach(one ->
                seen.add(Application.text(one).equals(BIG) ? "big" : Application.text(one)));
        }
        consumer.commitSync();
        Map<MessageQueue, Long> committed = new java.util.HashMap<>();
        Application.await(() -> {
            try {
                for (MessageQueue queue : consumer.assignment()) {
                    committed.put(queue, consumer.committed(queue));
                }
            } catch (Exception problem) {
                said.put("problem", String.valueOf(problem));
            }
            return committed.values().stream().mapToLong(offset -> Math.max(offset, 0)).sum() == 6;
        });
        said.put("bodies", Application.sorted(seen));
        said.put("committed", committed.values().stream().mapToLong(offset -> Math.max(offset, 0)).sum());
        said.put("queues", committed.size());
        consumer.shutdown();
    }

    static void rebalance(Application application, Map<String, Object> said) throws Exception {
        DefaultMQProducer producer = application.producer();
        producer.send(application.message("shared", "", "", "first"));
        ConcurrentLinkedQueue<String> seen = new ConcurrentLinkedQueue<>();
        DefaultMQPushConsumer one = application.consumer("shared", "shared", "*");
        DefaultMQPushConsumer other = application.consumer("shared", "shared", "*");
        one.registerMessageListener(Application.into(seen));
        other.registerMessageListener(Application.into(seen));
        one.start();
        Application.await(() -> queues(application, one) == 4);
        said.put("alone", queues(application, one));
        other.start();
        Application.await(() -> queues(application, one) == 2 && queues(application, other) == 2);
        said.put("together", Arrays.asList(queues(application, one), queues(application, other)));
        for (int i = 0; i < 8; i++) {
            producer.send(application.message("shared", "", "", "shared-" + i));
        }
        Application.await(() -> new TreeSet<>(seen).size() == 9);
        other.shutdown();
        Application.await(() -> queues(application, one) == 4);
        said.put("aloneAgain", queues(application, one));
        for (int i = 8; i < 12; i++) {
            producer.send(application.message("shared", "", "", "shared-" + i));
        }
        Application.await(() -> new TreeSet<>(seen).size() == 13);
        said.put("bodies", new ArrayList<>(new TreeSet<>(seen))); // A member that joins may be given one twice.
        one.shutdown();
        producer.shutdown();
    }

    private static int queues(Application application, DefaultMQPushConsumer consumer) {
        return (int) consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().keySet().stream()
            .filter(queue -> queue.getTopic().equals(application.own("shared"))).count();
    }
}
