package embermq;

import java.nio.ByteBuffer;
import java.util.Map;
import java.util.Set;
import org.apache.rocketmq.store.ConsumeQueueExt;
import org.apache.rocketmq.store.MessageFilter;

/** A tag subscription as the store sees it: a set of tag hashes. */
final class TagCodes implements MessageFilter {
    private final Set<Integer> wanted;

    TagCodes(Set<Integer> wanted) {
        this.wanted = wanted;
    }

    @Override
    public boolean isMatchedByConsumeQueue(Long tagsCode, ConsumeQueueExt.CqExtUnit unit) {
        return tagsCode == null || wanted.contains(tagsCode.intValue());
    }

    @Override
    public boolean isMatchedByCommitLog(ByteBuffer record, Map<String, String> properties) {
        return true;
    }
}
