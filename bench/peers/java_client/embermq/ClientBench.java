package embermq;

import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HashSet;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.LockSupport;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.protocol.ResponseCode;

/**
 * RocketMQ's own Java client as a load: one JSON line a step.
 *
 * <p>ClientBench NAME_SERVER STEP..., where a step is one of
 *
 * <ul>
 *   <li>sync:TOPIC:MESSAGES:BODY:THREADS
 *   <li>async:TOPIC:MESSAGES:BODY:IN_FLIGHT
 *   <li>consume:TOPIC:MESSAGES
 *   <li>deliver:TOPIC:MESSAGES:BODY:RATE
 * </ul>
 *
 * Every send must end with SEND_OK, and every message must be consumed once. A line on standard input starts each step,
 * so that the caller can look at the broker's CPU time before and after.
 */
public final class ClientBench {
    private static final int NUMBER_DIGITS = 12;
    private static final int SECONDS_MAX = 300;

    private final String nameServer;
    private final AtomicReference<Throwable> problem = new AtomicReference<>();
    private final AtomicLong busy = new AtomicLong();
    private int instances;

    private ClientBench(String nameServer) {
        this.nameServer = nameServer;
    }

    public static void main(String[] words) {
        ClientBench bench = new ClientBench(words[0]);
        try {
            for (String step : Arrays.asList(words).subList(1, words.length)) {
                System.out.println(bench.run(step.split(":")));
                System.out.flush();
            }
        } catch (Exception problem) {
            problem.printStackTrace();
            System.exit(1); // The client's threads would keep the process.
        }
        System.exit(0);
    }

    private String run(String[] words) throws Exception {
        int messages = Integer.parseInt(words[2]);
        switch (words[0]) {
            case "sync":
                return sync(words[1], messages, Integer.parseInt(words[3]), Integer.parseInt(words[4]));
            case "async":
                return async(words[1], messages, Integer.parseInt(words[3]), Integer.parseInt(words[4]));
            case "consume":
                return consume(words[1], messages);
            case "deliver":
                return deliver(words[1], messages, Integer.parseInt(words[3]), Integer.parseInt(words[4]));
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    /** Says that a step is prepared, and waits for the caller. */
    private static void ready() throws Exception {
        System.out.println("{\"ready\": true}");
        System.out.flush();
        if (System.in.read() < 0) {
            throw new IllegalStateException("the caller is gone");
        }
    }

    private static Message message(String topic, int number, int bodyBytes) {
        byte[] body = new byte[bodyBytes];
        Arrays.fill(body, (byte) number);
        byte[] digits = String.format("%012d", number).getBytes(StandardCharsets.US_ASCII);
        System.arraycopy(digits, 0, body, 0, NUMBER_DIGITS);
        return new Message(topic, "paid", "order-" + number, body);
    }

    private DefaultMQProducer producer() throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("bench_producer");
        producer.setNamesrvAddr(nameServer);
        producer.setInstanceName("bench-" + instances++);
        producer.setSendMsgTimeout(30_000);
        producer.start();
        return producer;
    }

    private void check(SendResult result) {
        if (result.getSendStatus() != SendStatus.SEND_OK) {
            problem.compareAndSet(null, new IllegalStateException(result.toString()));
        }
    }

    private void raise() throws Exception {
        if (problem.get() != null) {
            throw new Exception(problem.get());
        }
    }

    private String sync(String topic, int messages, int bodyBytes, int threads) throws Exception {
        DefaultMQProducer producer = producer();
        check(producer.send(message(topic, 0, bodyBytes))); // makes the topic
        AtomicInteger next = new AtomicInteger(1);
        Thread[] workers = new Thread[threads];
        for (int at = 0; at < threads; at++) {
            workers[at] = new Thread(() -> sendEach(producer, topic, next, messages, bodyBytes));
        }
        ready();
        long began = System.nanoTime();
        for (Thread worker : workers) {
            worker.start();
        }
        for (Thread worker : workers) {
            worker.join();
        }
        return told(producer, messages - 1, began);
    }

    private void sendEach(DefaultMQProducer producer, String topic, AtomicInteger next, int messages, int bodyBytes) {
        try {
            int number;
            while ((number = next.getAndIncrement()) < messages && problem.get() == null) {
                sendUntilTaken(producer, message(topic, number, bodyBytes));
            }
        } catch (Exception error) {
            problem.compareAndSet(null, error);
        }
    }

    private void sendUntilTaken(DefaultMQProducer producer, Message message) throws Exception {
        while (true) {
            try {
                check(producer.send(message));
                return;
            } catch (MQBrokerException refused) {
                countBusy(refused);
            }
        }
    }

    /** A broker that is busy (code 2) has stored nothing: the message is sent again. Anything else is a problem. */
    private void countBusy(Throwable refused) throws Exception {
        boolean isBusy = refused instanceof MQBrokerException
                && ((MQBrokerException) refused).getResponseCode() == ResponseCode.SYSTEM_BUSY;
        if (!isBusy) {
            throw new Exception(refused);
        }
        busy.incrementAndGet();
    }

    /** Sends again from the callback while the broker is busy; `free` gets its permit back at the end. */
    private void sendAsync(DefaultMQProducer producer, Message message, Semaphore free) {
        SendCallback callback = new SendCallback() {
            @Override
            public void onSuccess(SendResult result) {
                check(result);
                free.release();
            }

            @Override
            public void onException(Throwable refused) {
                try {
                    countBusy(refused);
                    sendAsync(producer, message, free);
                } catch (Exception error) {
                    problem.compareAndSet(null, error);
                    free.release();
                }
            }
        };
        try {
            producer.send(message, callback);
        } catch (Exception error) {
            problem.compareAndSet(null, error);
            free.release();
        }
    }

    private String async(String topic, int messages, int bodyBytes, int inFlight) throws Exception {
        DefaultMQProducer producer = producer();
        check(producer.send(message(topic, 0, bodyBytes)));
        Semaphore free = new Semaphore(inFlight);
        ready();
        long began = System.nanoTime();
        for (int number = 1; number < messages && problem.get() == null; number++) {
            free.acquire();
            sendAsync(producer, message(topic, number, bodyBytes), free);
        }
        free.acquire(inFlight);
        return told(producer, messages - 1, began);
    }

    private String told(DefaultMQProducer producer, int messages, long began) throws Exception {
        double seconds = (System.nanoTime() - began) / 1e9;
        raise();
        producer.shutdown();
        return String.format(
                "{\"messages\": %d, \"per_second\": %.1f, \"busy\": %d}", messages, messages / seconds, busy.get());
    }

    private DefaultMQPushConsumer consumer(String topic, MessageListenerConcurrently listener) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("bench_" + topic);
        consumer.setNamesrvAddr(nameServer);
        consumer.setInstanceName("bench-" + instances++);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener(listener);
        return consumer;
    }

    /** From the first message that arrives to the last: a start of the client is not what is measured. */
    private String consume(String topic, int messages) throws Exception {
        Set<String> ids = new HashSet<>();
        AtomicLong began = new AtomicLong();
        AtomicLong ended = new AtomicLong();
        AtomicLong bytes = new AtomicLong();
        CountDownLatch all = new CountDownLatch(messages);
        DefaultMQPushConsumer consumer = consumer(topic, (some, context) -> {
            began.compareAndSet(0, System.nanoTime());
            for (MessageExt one : some) {
                bytes.addAndGet(one.getBody().length);
                synchronized (ids) {
                    if (ids.add(one.getMsgId())) {
                        all.countDown();
                    }
                }
            }
            if (all.getCount() == 0) {
                ended.compareAndSet(0, System.nanoTime());
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        ready();
        consumer.start();
        if (!all.await(SECONDS_MAX, TimeUnit.SECONDS)) {
            throw new IllegalStateException(all.getCount() + " messages of " + topic + " did not arrive");
        }
        while (ended.get() == 0) {
            LockSupport.parkNanos(100_000);
        }
        double seconds = (ended.get() - began.get()) / 1e9;
        consumer.shutdown();
        return String.format("{\"messages\": %d, \"bytes\": %d, \"per_second\": %.1f}", messages, bytes.get(), messages / seconds);
    }

    /** A producer at a steady rate and a push consumer; each message from when it was due to when the listener has it. */
    private String deliver(String topic, int messages, int bodyBytes, int rate) throws Exception {
        int warmUp = Math.min(rate, messages / 5); // at most a second
        int all = warmUp + messages;
        long[] due = new long[all];
        long[] latencies = new long[all];
        CountDownLatch left = new CountDownLatch(all);
        Semaphore free = new Semaphore(all); // never waited for: the rate decides
        DefaultMQProducer producer = producer();
        DefaultMQPushConsumer consumer = consumer(topic, (some, context) -> {
            long now = System.nanoTime();
            for (MessageExt one : some) {
                String digits = new String(one.getBody(), 0, NUMBER_DIGITS, StandardCharsets.US_ASCII);
                int number = Integer.parseInt(digits);
                if (number < all && latencies[number] == 0) {
                    latencies[number] = now - due[number];
                    left.countDown();
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        check(producer.send(message(topic, all, bodyBytes))); // makes the topic; not counted
        consumer.start();
        Thread.sleep(3000); // until it has its queues
        ready();
        long began = System.nanoTime();
        for (int number = 0; number < all && problem.get() == null; number++) {
            due[number] = began + number * 1_000_000_000L / rate;
            for (long wait; (wait = due[number] - System.nanoTime()) > 0; ) {
                LockSupport.parkNanos(wait);
            }
            free.acquire();
            sendAsync(producer, message(topic, number, bodyBytes), free);
        }
        if (!left.await(SECONDS_MAX, TimeUnit.SECONDS)) {
            raise();
            throw new IllegalStateException(left.getCount() + " messages of " + topic + " did not arrive");
        }
        raise();
        producer.shutdown();
        consumer.shutdown();
        long[] sorted = Arrays.copyOfRange(latencies, warmUp, all);
        Arrays.sort(sorted);
        return String.format(
                "{\"messages\": %d, \"sent\": %d, \"delivery_p50_us\": %.1f, \"delivery_p99_us\": %.1f}",
                messages, all, sorted[messages / 2] / 1e3, sorted[(int) (messages * 0.99)] / 1e3);
    }
}
