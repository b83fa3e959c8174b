package embermq;

import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import com.alibaba.fastjson.serializer.SerializerFeature;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.QueryMessageResult;
import org.apache.rocketmq.store.SelectMappedBufferResult;

/**
 * The reference's store behind a pipe: JSON lines in, one JSON line out for each (dump: several, ending with
 * "bounds").
 *
 * <pre>
 * ReferenceStore read|write DIR [--close] [--deliver] [--settings name=value ...]
 * </pre>
 *
 * The first line out is {"is":"open", ...}; `read` dumps before it listens. Input ending without `--close`
 * halts the process with files as they are, as a kill would: a driver that dies leaves no process behind, and
 * one that wants a kill at its own moment keeps the pipe open.
 */
public final class ReferenceStore {
    private static final PrintStream OUT = System.out;
    private static final int EXIT_NOT_LOADED = 3;

    private final OpenedStore store;

    private ReferenceStore(OpenedStore store) {
        this.store = store;
    }

    public static void main(String[] arguments) {
        System.setOut(System.err); // The pipe carries answers only, whatever a library wants to say.
        try {
            run(arguments);
        } catch (Exception problem) {
            problem.printStackTrace();
            Runtime.getRuntime().halt(1); // The store's threads would keep the process, and the driver, waiting.
        }
    }

    private static void run(String[] arguments) throws Exception {
        List<String> words = Arrays.asList(arguments);
        OpenedStore store = new OpenedStore(words.get(1), settings(words), words.contains("--deliver"));
        if (!store.load()) {
            say(JSON.parseObject("{\"is\":\"refused\"}"));
            Runtime.getRuntime().halt(EXIT_NOT_LOADED);
        }
        Map<String, Object> opened = Dump.line("open");
        opened.put("loadedMaxPhyOffset", store.getMaxPhyOffset());
        store.start();
        opened.put("maxPhyOffset", store.getMaxPhyOffset());
        say(opened);
        ReferenceStore session = new ReferenceStore(store);
        if (words.get(0).equals("read")) {
            Dump.everything(store, ReferenceStore::say);
        }
        boolean close = session.answerAll() || words.contains("--close");
        if (close) {
            store.shutdown();
            say(Dump.line("closed"));
        }
        Runtime.getRuntime().halt(0);
    }

    static Map<String, String> settings(List<String> words) {
        Map<String, String> settings = new HashMap<>();
        int from = words.indexOf("--settings");
        for (String word : from < 0 ? words.subList(0, 0) : words.subList(from + 1, words.size())) {
            int at = word.indexOf('=');
            settings.put(word.substring(0, at), word.substring(at + 1));
        }
        return settings;
    }

    /** True when told to close, false when the input just ended. */
    private boolean answerAll() throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JSONObject asked = JSON.parseObject(line);
            if (asked.getString("do").equals("close")) {
                return true;
            }
            answer(asked);
        }
        return false;
    }

    private void answer(JSONObject asked) throws Exception {
        switch (asked.getString("do")) {
            case "put":
                put(asked);
                break;
            case "dump":
                Dump.everything(store, ReferenceStore::say);
                break;
            case "settle":
                store.settle();
                say(Dump.line("settled"));
                break;
            case "flush":
                store.flush();
                say(Dump.line("flushed"));
                break;
            case "get":
                get(asked);
                break;
            case "key":
                key(asked);
                break;
            case "time":
                say("offset", store.getOffsetInQueueByTime(
                    asked.getString("topic"), asked.getIntValue("queueId"), asked.getLongValue("time")));
                break;
            case "look":
                ByteBuffer record = Dump.copy(store.selectOneMessageByOffset(asked.getLongValue("phy")));
                say("record", Dump.record(record));
                break;
            default:
                throw new IllegalArgumentException(asked.toString());
        }
    }

    private void put(JSONObject put) throws Exception {
        Long clock = put.getLong("clock");
        store.pinClock(clock == null ? -1 : clock);
        JSONArray items = put.getJSONArray("items");
        boolean batch = items != null && !items.isEmpty();
        say(Puts.answer(batch ? store.putMessages(Puts.batch(put)) : store.putMessage(Puts.single(put))));
    }

    /** One pull; `codes` filters on the consume queue as a tag subscription does. */
    private void get(JSONObject asked) {
        JSONArray codes = asked.getJSONArray("codes");
        Set<Integer> wanted = codes == null ? null : new TreeSet<>(codes.toJavaList(Integer.class));
        GetMessageResult got = store.getMessage("get", asked.getString("topic"), asked.getIntValue("queueId"),
            asked.getLongValue("offset"), asked.getIntValue("max"), wanted == null ? null : new TagCodes(wanted));
        Map<String, Object> told = Dump.line("got");
        told.put("status", got.getStatus().name());
        told.put("next", got.getNextBeginOffset());
        told.put("min", got.getMinOffset());
        told.put("max", got.getMaxOffset());
        told.put("phys", offsets(got.getMessageMapedList()));
        got.release();
        say(told);
    }

    private void key(JSONObject asked) {
        QueryMessageResult got = store.queryMessage(asked.getString("topic"), asked.getString("key"),
            asked.getIntValue("max"), asked.getLongValue("begin"), asked.getLongValue("end"));
        List<Long> physical = new ArrayList<>();
        for (ByteBuffer record : got.getMessageBufferList()) {
            physical.add(record.getLong(MessageDecoder.MESSAGE_PHYSIC_OFFSET_POSTION));
        }
        got.release();
        say("phys", physical);
    }

    private static List<Long> offsets(List<SelectMappedBufferResult> views) {
        List<Long> physical = new ArrayList<>();
        for (SelectMappedBufferResult view : views) {
            physical.add(view.getStartOffset());
        }
        return physical;
    }

    private static void say(String name, Object value) {
        Map<String, Object> told = Dump.line("answer");
        told.put(name, value);
        say(told);
    }

    private static void say(Map<String, Object> told) {
        OUT.println(JSON.toJSONString(told, SerializerFeature.WriteMapNullValue));
        OUT.flush();
    }
}
