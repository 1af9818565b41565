import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.*;
import java.nio.charset.StandardCharsets;
import java.util.*;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * An early release of Apache Kafka's client: a JSON object a line, commands on stdin, answers on stdout, as Grid.java.
 *
 * The producer's interface is the same in all releases from 0.8.2 on, but for what Release adds to a record; how a
 * release reads is in its Reading.
 */
public class Old {
    static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws IOException {
        var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        var out = new PrintStream(new BufferedOutputStream(new FileOutputStream(FileDescriptor.out)), false, StandardCharsets.UTF_8);
        System.setOut(System.err); // the old releases' loggers write there
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            Map<String, Object> answer = new HashMap<>();
            try {
                JsonNode command = JSON.readTree(line);
                answer.put("ok", command.get("do").asText().equals("produce") ? produce(command) : Reading.run(command));
            } catch (Throwable problem) { // an Error too: what a release misses in a newer Java
                Throwable cause = problem instanceof ExecutionException ? problem.getCause() : problem;
                cause.printStackTrace();
                answer.put("error", cause.toString());
                answer.put("code", Reading.code(cause));
            }
            out.println(JSON.writeValueAsString(answer));
            out.flush();
        }
        System.exit(0); // some keep threads that are not daemons
    }

    static Object produce(JsonNode c) throws Exception {
        if (c.path("by").asText().equals("scala")) {
            return Reading.produce(c);
        }
        Map<String, Object> settings = Map.of("bootstrap.servers", c.get("bootstrap").asText(),
            "compression.type", c.get("codec").asText(), "acks", c.get("acks").asText(), "linger.ms", "20",
            "max.request.size", "10485760", "retries", "3", "max.in.flight.requests.per.connection", "1");
        Integer partition = c.get("partition").isNull() ? null : c.get("partition").asInt();
        KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
        try (producer) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (JsonNode each : c.get("records")) {
                sent.add(producer.send(Release.record(c.get("topic").asText(), partition, bytes(each.get("key")), bytes(each.get("value")), each)));
            }
            for (Future<RecordMetadata> each : sent) {
                each.get();
            }
        }
        return null;
    }

    static byte[] bytes(JsonNode text) {
        return text.isNull() ? null : Base64.getDecoder().decode(text.asText());
    }
}
