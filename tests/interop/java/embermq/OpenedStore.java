package embermq;

import java.io.IOException;
import java.util.Map;
import java.util.Properties;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.SystemClock;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.config.BrokerRole;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/**
 * The reference's store as a library: no broker around it, a clock that can be pinned, delayed delivery only
 * when asked for. Nothing else differs from what a broker runs.
 */
final class OpenedStore extends DefaultMessageStore {
    private final PinnableClock clock = new PinnableClock();
    private final boolean deliverDelayed;

    OpenedStore(String root, Map<String, String> settings, boolean deliverDelayed) throws IOException {
        super(configure(root, settings), new BrokerStatsManager("reference", false), null, new BrokerConfig());
        this.deliverDelayed = deliverDelayed;
    }

    private static MessageStoreConfig configure(String root, Map<String, String> settings) {
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir(root);
        config.setStorePathCommitLog(root + "/commitlog");
        config.setHaListenPort(0); // Any free port: several stores run at once in a test suite.
        Properties properties = new Properties();
        properties.putAll(settings);
        MixAll.properties2Object(properties, config);
        return config;
    }

    /** Store times are read from here, inside the put lock. */
    @Override
    public SystemClock getSystemClock() {
        return clock == null ? super.getSystemClock() : clock; // null only while the super constructor runs
    }

    /** Parked messages would come back at a moment no test controls, so delivery stays off by default. */
    @Override
    public void handleScheduleMessageService(BrokerRole role) {
        if (deliverDelayed) {
            super.handleScheduleMessageService(role);
        }
    }

    void pinClock(long milliseconds) {
        clock.pinned = milliseconds;
    }

    /** Waits until queues and index hold everything the log holds. */
    void settle() throws InterruptedException {
        while (dispatchBehindBytes() > 0) {
            Thread.sleep(1);
        }
    }

    private static final class PinnableClock extends SystemClock {
        private volatile long pinned = -1;

        @Override
        public long now() {
            return pinned < 0 ? super.now() : pinned;
        }
    }
}
