import java.lang.reflect.Field;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.common.config.ConfigDef;

/** Prints every setting of a broker of Apache Kafka on a line: its name, a tab, its default. */
public class ConfigNames {
    public static void main(String[] arguments) throws Exception {
        Class<?> config = Class.forName("kafka.server.KafkaConfig$");
        Object module = config.getField("MODULE$").get(null);
        for (Field field : config.getDeclaredFields()) {
            if (field.getType() != ConfigDef.class) continue;
            field.setAccessible(true);
            ConfigDef definition = (ConfigDef) field.get(module);
            for (Map.Entry<String, ConfigDef.ConfigKey> each : new TreeMap<>(definition.configKeys()).entrySet())
                System.out.println(each.getKey() + "\t" + each.getValue().defaultValue);
        }
    }
}
