package embermq;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Every way to send, and a request that waits for its reply. */
final class Sending {
    private Sending() {
    }

    static void produce(Application application, Map<String, Object> said) throws Exception {
        DefaultMQProducer producer = application.producer();
        List<String> statuses = new ArrayList<>();
        for (int i = 0; i < 10; i++) {
            String tag = i % 2 == 1 ? "odd" : "even";
            SendResult sent = producer.send(application.message("produced", tag, "key-" + i, "sync-" + i));
            statuses.add(sent.getSendStatus() + " " + sent.getOffsetMsgId().length() + " " + sent.getRegionId());
        }
        said.put("statuses", statuses);
        sendAsynchronously(application, producer, said);
        for (int i = 0; i < 10; i++) {
            producer.sendOneway(application.message("produced", "plain", "", "oneway-" + i));
        }
        List<Message> batch = new ArrayList<>();
        for (int i = 0; i < 10; i++) {
            batch.add(application.message("produced", "plain", "", "batch-" + i));
        }
        SendResult sent = producer.send(batch);
        said.put("batch", sent.getSendStatus().name());
        said.put("batchIds", sent.getMsgId().split(",").length);
        said.put("batchOffsetIds", sent.getOffsetMsgId().split(",").length);
        producer.shutdown();
    }

    private static void sendAsynchronously(
            Application application, DefaultMQProducer producer, Map<String, Object> said) throws Exception {
        CountDownLatch answered = new CountDownLatch(10);
        ConcurrentLinkedQueue<String> failed = new ConcurrentLinkedQueue<>();
        for (int i = 0; i < 10; i++) {
            Message one = application.message("produced", i % 2 == 1 ? "odd" : "even", "", "async-" + i);
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
        said.put("answered", answered.await(Application.SECONDS, TimeUnit.SECONDS));
        said.put("failed", new ArrayList<>(failed));
    }

    static void sendMore(Application application, Map<String, Object> said) throws Exception {
        DefaultMQProducer producer = application.producer();
        List<String> statuses = new ArrayList<>();
        for (int i = 0; i < 5; i++) {
            statuses.add(producer.send(application.message("produced", "more", "", "more-" + i)).getSendStatus().name());
        }
        said.put("statuses", statuses);
        producer.shutdown();
    }

    static void requestReply(Application application, Map<String, Object> said) throws Exception {
        DefaultMQProducer replier = application.producer();
        replier.send(application.message("asked", "", "", "no question")); // Makes the topic.
        DefaultMQPushConsumer consumer = application.consumer("asked", "asked", "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt one : messages) {
                if (Application.text(one).startsWith("question")) {
                    try {
                        byte[] answer = ("reply to " + Application.text(one)).getBytes(StandardCharsets.UTF_8);
                        replier.send(MessageUtil.createReplyMessage(one, answer));
                    } catch (Exception problem) {
                        problem.printStackTrace(); // The asker asks again.
                    }
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        DefaultMQProducer asker = application.producer();
        List<String> replies = new ArrayList<>();
        for (int i = 0; i < 3; i++) {
            Message question = application.message("asked", "", "", "question-" + i);
            Application.await(() -> replied(asker, question, replies, said));
        }
        said.put("replies", replies);
        consumer.shutdown();
        asker.shutdown();
        replier.shutdown();
    }

    /** A reply finds its way only after a heartbeat of the asker, which may come after its first request: it asks again. */
    private static boolean replied(
            DefaultMQProducer asker, Message question, List<String> replies, Map<String, Object> said) {
        String wanted = "reply to " + Application.text(question);
        if (!replies.contains(wanted)) {
            try {
                Message again = new Message(question.getTopic(), question.getBody());
                Message reply = asker.request(again, 10_000);
                replies.add(Application.text(reply));
                said.put("properties", Application.sorted(reply.getProperties().keySet()));
            } catch (Exception notYet) {
                return false;
            }
        }
        return replies.contains(wanted);
    }
}
