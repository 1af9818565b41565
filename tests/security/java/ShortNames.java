import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Arrays;
import org.apache.kafka.common.security.kerberos.KerberosName;
import org.apache.kafka.common.security.kerberos.KerberosShortNamer;

/** Lines of realm, rules and principal, separated by tabs; answers the name that Apache Kafka makes of it, or a minus. */
public class ShortNames {
    public static void main(String[] arguments) throws Exception {
        BufferedReader questions = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        for (String line = questions.readLine(); line != null; line = questions.readLine()) {
            String[] parts = line.split("\t", -1);
            String answer;
            try {
                KerberosShortNamer namer =
                    KerberosShortNamer.fromUnparsedRules(parts[0], Arrays.asList(parts[1].split(",", -1)));
                answer = "+" + namer.shortName(KerberosName.parse(parts[2]));
            } catch (Exception e) {
                answer = "-";
            }
            System.out.println(answer);
        }
    }
}
