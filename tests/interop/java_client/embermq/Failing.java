package embermq;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentLinkedQueue;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.MessageExt;

/** Messages that are not consumed at the first attempt. The client gives those of a retry topic their own topic back. */
final class Failing {
    private Failing() {
    }

    static void retry(Application application, Map<String, Object> said) throws Exception {
        DefaultMQProducer producer = application.producer();
        producer.send(application.message("retried", "", "retried-key", "once-more"));
        producer.shutdown();
        DefaultMQPushConsumer consumer = application.consumer("retried", "retried", "*");
        ConcurrentLinkedQueue<String> seen = new ConcurrentLinkedQueue<>();
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            MessageExt one = messages.get(0);
            synchronized (said) {
                said.put("properties", Application.properties(one));
            }
            seen.add(application.plain(one.getTopic()) + " " + Application.text(one) + " " + one.getReconsumeTimes());
            context.setDelayLevelWhenNextConsume(1);
            return one.getReconsumeTimes() < 2
                ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        said.put("seen", Application.settled(seen, 3));
        consumer.shutdown();
    }

    static void deadLetter(Application application, Map<String, Object> said) throws Exception {
        DefaultMQProducer producer = application.producer();
        producer.send(application.message("hopeless", "", "hopeless-key", "dead"));
        DefaultMQPushConsumer consumer = application.consumer("hopeless", "hopeless", "*");
        consumer.setMaxReconsumeTimes(1);
        ConcurrentLinkedQueue<String> seen = new ConcurrentLinkedQueue<>();
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(one -> seen.add(Application.text(one) + " " + one.getReconsumeTimes()));
            context.setDelayLevelWhenNextConsume(1);
            return ConsumeConcurrentlyStatus.RECONSUME_LATER;
        });
        consumer.start();
        said.put("seen", Application.settled(seen, 2));
        consumer.shutdown();
        List<MessageExt> dead = new ArrayList<>();
        long now = System.currentTimeMillis();
        Application.await(() -> {
            if (!dead.isEmpty()) {
                return true;
            }
            try {
                String topic = "%DLQ%" + application.own("hopeless");
                dead.addAll(producer.queryMessage(topic, "hopeless-key", 10, now - 60_000, now + 60_000).getMessageList());
            } catch (MQClientException | InterruptedException notYet) {
                return false;
            }
            return !dead.isEmpty();
        });
        List<String> found = new ArrayList<>();
        for (MessageExt one : dead) {
            found.add(application.plain(one.getTopic()) + " " + Application.text(one) + " " + one.getReconsumeTimes()
                + " " + Application.properties(one) + " DELAY=" + one.getProperty("DELAY"));
        }
        said.put("dead", found);
        producer.shutdown();
    }

    /** The listener is content, and has the message sent to it again all the same. */
    static void sendBack(Application application, Map<String, Object> said) throws Exception {
        DefaultMQProducer producer = application.producer();
        producer.send(application.message("returned", "", "", "boomerang"));
        producer.shutdown();
        DefaultMQPushConsumer consumer = application.consumer("returned", "returned", "*");
        ConcurrentLinkedQueue<String> seen = new ConcurrentLinkedQueue<>();
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt one : messages) {
                seen.add(Application.text(one) + " " + one.getReconsumeTimes());
                if (one.getReconsumeTimes() == 0) {
                    try {
                        consumer.sendMessageBack(one, 1);
                    } catch (Exception problem) {
                        seen.add(String.valueOf(problem));
                    }
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        said.put("seen", Application.settled(seen, 2));
        consumer.shutdown();
    }
}
