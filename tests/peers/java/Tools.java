import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Base64;
import org.apache.kafka.common.utils.Exit;

/** Kafka's command line tools in one JVM. A line on stdin is a class and its arguments, separated by tabs; it is answered
 *  with the tool's exit status, a space, and what it printed, in base64. */
public class Tools {
    static class Ended extends RuntimeException { }

    /** The status of the first exit: some tools take the end for an error, and exit again. */
    static Integer exit;

    public static void main(String[] args) throws Exception {
        PrintStream out = System.out;
        Exit.setExitProcedure((status, message) -> {
            if (exit == null) exit = status;
            throw new Ended();
        });
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split("\t", -1);
            ByteArrayOutputStream printed = new ByteArrayOutputStream();
            PrintStream both = new PrintStream(printed, true, StandardCharsets.UTF_8);
            System.setOut(both);
            System.setErr(both);
            exit = null;
            try {
                Object arguments = Arrays.copyOfRange(words, 1, words.length);
                Class.forName(words[0]).getMethod("main", String[].class).invoke(null, arguments);
            } catch (InvocationTargetException thrown) {
                if (exit == null) {
                    exit = 1;
                    thrown.getCause().printStackTrace();
                }
            }
            out.println((exit == null ? 0 : exit) + " " + Base64.getEncoder().encodeToString(printed.toByteArray()));
        }
    }
}
