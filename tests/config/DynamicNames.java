import java.util.Map;
import java.util.TreeMap;

/** Prints every setting that Apache Kafka changes while a broker runs on a line: its name, a tab, its update mode. */
public class DynamicNames {
    public static void main(String[] arguments) throws Exception {
        for (Map.Entry<String, String> each : modes().entrySet()) System.out.println(each.getKey() + "\t" + each.getValue());
    }

    @SuppressWarnings("unchecked")
    private static Map<String, String> modes() throws Exception {
        Class<?> owner;
        Object module = null;
        try {
            owner = Class.forName("org.apache.kafka.server.config.DynamicBrokerConfig");
        } catch (ClassNotFoundException error) { // before 4.2 it was an object of Scala
            owner = Class.forName("kafka.server.DynamicBrokerConfig$");
            module = owner.getField("MODULE$").get(null);
        }
        return new TreeMap<>((Map<String, String>) owner.getMethod("dynamicConfigUpdateModes").invoke(module));
    }
}
