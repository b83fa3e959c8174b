package embermq;

import java.util.Collections;
import java.util.List;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.remoting.protocol.heartbeat.MessageModel;

/** What differs between versions of the client: here 5.3. */
final class Moved {
    /** With Apache's broker as with EmberMQ, consumers of 5.3.3 send no trace. */
    static final List<String> TRACES = Collections.singletonList("Pub");

    private Moved() {
    }

    static void toEveryMember(DefaultMQPushConsumer consumer) {
        consumer.setMessageModel(MessageModel.BROADCASTING);
    }
}
