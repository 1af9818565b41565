import java.io.FileInputStream;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;

/** Prints, for each file, what java.util.Properties reads: KEY=VALUE in hexadecimal UTF-16, and a line that says end. */
public class ReadProperties {
    public static void main(String[] files) throws Exception {
        for (String file : files) {
            Properties found = new Properties();
            try (FileInputStream in = new FileInputStream(file)) {
                found.load(in);
            }
            for (Map.Entry<Object, Object> each : new TreeMap<>(found).entrySet())
                System.out.println(hex((String) each.getKey()) + "=" + hex((String) each.getValue()));
            System.out.println("end");
        }
    }

    private static String hex(String text) {
        StringBuilder digits = new StringBuilder();
        for (char each : text.toCharArray()) digits.append(String.format("%04x", (int) each));
        return digits.toString();
    }
}
