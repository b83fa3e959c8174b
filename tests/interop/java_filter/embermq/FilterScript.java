package embermq;

import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONObject;
import com.alibaba.fastjson.serializer.SerializerFeature;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import org.apache.rocketmq.filter.FilterFactory;
import org.apache.rocketmq.filter.expression.EvaluationContext;
import org.apache.rocketmq.filter.expression.Expression;
import org.apache.rocketmq.filter.util.BloomFilter;

/**
 * RocketMQ's SQL filter behind a pipe: a line with an expression and properties in, a line with what it makes of them
 * out. {"key": ...} instead asks for the bits of a bloom filter.
 */
public final class FilterScript {
    private FilterScript() {
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(System.out, false, "UTF-8");
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JSONObject asked = JSON.parseObject(line);
            Map<String, Object> answer = asked.containsKey("key") ? bits(asked) : evaluated(asked);
            out.println(JSON.toJSONString(answer, SerializerFeature.WriteMapNullValue));
            out.flush();
        }
    }

    private static Map<String, Object> bits(JSONObject asked) {
        BloomFilter filter = BloomFilter.createByFn(asked.getIntValue("f"), asked.getIntValue("n"));
        Map<String, Object> answer = new HashMap<>();
        answer.put("k", filter.getK());
        answer.put("m", filter.getM());
        answer.put("positions", filter.generate(asked.getString("key")).getBitPos());
        return answer;
    }

    private static Map<String, Object> evaluated(JSONObject asked) {
        Map<String, Object> answer = new HashMap<>();
        Expression expression;
        try {
            expression = FilterFactory.INSTANCE.get("SQL92").compile(asked.getString("expression"));
        } catch (Throwable problem) {
            answer.put("is", "refused");
            answer.put("why", String.valueOf(problem));
            return answer;
        }
        JSONObject properties = asked.getJSONObject("properties");
        try {
            Object value = expression.evaluate(new Properties(properties));
            answer.put("is", value == null ? "unknown" : value instanceof Boolean ? value.toString() : "other");
        } catch (Throwable problem) {
            answer.put("is", "error");
            answer.put("why", String.valueOf(problem));
        }
        return answer;
    }

    private static final class Properties implements EvaluationContext {
        private final JSONObject properties;

        Properties(JSONObject properties) {
            this.properties = properties;
        }

        @Override
        public Object get(String name) {
            return properties.getString(name);
        }

        @Override
        public Map<String, Object> keyValues() {
            return new HashMap<>(properties);
        }
    }
}
