package embermq;

import com.alibaba.fastjson.JSON;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.ArrayList;

/**
 * Uses a broker as an application does, and prints one JSON line a step; the test compares.
 *
 * <p>ClientScript NAME_SERVER PREFIX CHAIN..., where a chain is the names of steps with commas between: its steps run one
 * after another, the chains side by side. PREFIX begins every topic and group, so that scripts can share a broker.
 */
public final class ClientScript {
    private static final int CHAINS_AT_ONCE = 4;

    /** One thing an application does; puts into the map what came of it. */
    interface Step {
        void run(Application application, Map<String, Object> said) throws Exception;
    }

    private static final Map<String, Step> STEPS = new TreeMap<>();

    static {
        STEPS.put("produce", Sending::produce);
        STEPS.put("sendMore", Sending::sendMore);
        STEPS.put("requestReply", Sending::requestReply);
        STEPS.put("transactions", Transacting::transactions);
        STEPS.put("concurrent", Consuming::concurrent);
        STEPS.put("tags", Consuming::tags);
        STEPS.put("resume", Consuming::resume);
        STEPS.put("orderly", Consuming::orderly);
        STEPS.put("broadcast", Consuming::broadcast);
        STEPS.put("delay", Consuming::delay);
        STEPS.put("litePull", Consuming::litePull);
        STEPS.put("rebalance", Consuming::rebalance);
        STEPS.put("retry", Failing::retry);
        STEPS.put("deadLetter", Failing::deadLetter);
        STEPS.put("sendBack", Failing::sendBack);
        STEPS.put("query", Asking::query);
        STEPS.put("reset", Asking::reset);
        STEPS.put("trace", Asking::trace);
    }

    private ClientScript() {
    }

    public static void main(String[] words) throws Exception {
        Application application = new Application(words[0], words[1]);
        ExecutorService threads = Executors.newFixedThreadPool(CHAINS_AT_ONCE);
        List<Future<?>> chains = new ArrayList<>();
        for (String chain : Arrays.asList(words).subList(2, words.length)) {
            chains.add(threads.submit(() -> {
                for (String step : chain.split(",")) {
                    run(application, step);
                }
            }));
        }
        for (Future<?> chain : chains) {
            chain.get();
        }
        System.exit(0); // The client's threads would keep the process.
    }

    private static void run(Application application, String step) {
        Map<String, Object> said = new TreeMap<>();
        said.put("step", step);
        try {
            STEPS.get(step).run(application, said);
        } catch (Exception problem) {
            problem.printStackTrace();
            said.put("problem", String.valueOf(problem));
        }
        synchronized (System.out) {
            System.out.println(JSON.toJSONString(said));
            System.out.flush();
        }
    }
}
