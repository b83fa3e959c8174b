package embermq;

import java.util.Arrays;
import java.util.List;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.common.protocol.heartbeat.MessageModel;

/** What differs between versions of the client: here 4.9. */
final class Moved {
    static final List<String> TRACES = Arrays.asList("Pub", "SubBefore", "SubAfter");

    private Moved() {
    }

    static void toEveryMember(DefaultMQPushConsumer consumer) {
        consumer.setMessageModel(MessageModel.BROADCASTING);
    }
}
