import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/** Runs mqadmin's commands one after another in one virtual machine: a line of words in, what it prints and an end mark out. */
public final class AdminScript {
    private static final String WORDS = "\u0001";
    private static final String END = "\u0002";

    public static void main(String[] arguments) throws Exception {
        System.setErr(System.out);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            try {
                MQAdminStartup.main0(line.split(WORDS), null);
            } catch (Throwable problem) {
                problem.printStackTrace(System.out);
            }
            System.out.println(END);
            System.out.flush();
        }
        System.exit(0);
    }
}
