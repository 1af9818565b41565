import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.InvocationTargetException;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;

/** Reads lines `name TAB version TAB json`; answers each with the bytes of that message in hex, `-` where unsupported. */
public class Oracle {
    private static final String[] PLACES = {
        "org.apache.kafka.common.message.%sData",
        "org.apache.kafka.common.message.%s",
        "org.apache.kafka.common.metadata.%s",
        "org.apache.kafka.coordinator.group.generated.%s",
        "org.apache.kafka.coordinator.transaction.generated.%s",
        "org.apache.kafka.coordinator.share.generated.%s",
    };

    public static void main(String[] args) throws Exception {
        ObjectMapper mapper = new ObjectMapper();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split("\t", 3);
            System.out.println(answer(words[0], Short.parseShort(words[1]), mapper.readTree(words[2])));
        }
    }

    private static String answer(String name, short version, JsonNode json) throws Exception {
        for (String place : PLACES) {
            Class<?> type;
            try {
                type = Class.forName(String.format(place, name));
            } catch (ClassNotFoundException absent) {
                continue;
            }
            Message empty = (Message) type.getDeclaredConstructor().newInstance();
            if (version < empty.lowestSupportedVersion() || version > empty.highestSupportedVersion()) {
                return "-";
            }
            try {
                Class<?> converter = Class.forName(type.getName() + "JsonConverter");
                Message message = (Message) converter.getMethod("read", JsonNode.class, short.class).invoke(null, json, version);
                ObjectSerializationCache cache = new ObjectSerializationCache();
                ByteBuffer buffer = ByteBuffer.allocate(message.size(cache, version));
                message.write(new ByteBufferAccessor(buffer), cache, version);
                return HexFormat.of().formatHex(buffer.array());
            } catch (InvocationTargetException failure) {
                return "! " + failure.getCause();
            } catch (RuntimeException failure) {
                return "! " + failure;
            }
        }
        return "-";
    }
}
