import java.io.*;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.*;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * Apache Kafka's share consumers, told by a line each on stdin; each line is answered with one on stdout.
 *
 * <pre>
 * group GROUP NAME=VALUE ...            sets configs of a group
 * open NAME GROUP TOPIC SETTING=VALUE ...   a consumer
 * poll NAME MS                          PARTITION:OFFSET:VALUE:DELIVERY-COUNT ...
 * take NAME COUNT MS                    the same, of several polls until COUNT records came or the time is over
 * ack NAME OFFSET TYPE                  of a record of the last poll
 * commit NAME                           the error of each partition, "none" without one
 * close NAME
 * </pre>
 */
public class ShareConsumers {
    static final Map<String, KafkaShareConsumer<String, String>> consumers = new HashMap<>();
    static final Map<String, Map<Long, ConsumerRecord<String, String>>> polled = new HashMap<>();
    static String bootstrap;

    public static void main(String[] arguments) throws IOException {
        bootstrap = arguments[0];
        var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String answer;
            try {
                answer = "ok " + answer(line.split(" "));
            } catch (Exception error) {
                answer = "error " + error.getClass().getSimpleName() + ": " + error.getMessage();
            }
            System.out.println(answer.replace('\n', ' ').strip());
            System.out.flush();
        }
        consumers.values().forEach(each -> each.close(Duration.ofSeconds(5)));
    }

    static String answer(String[] words) throws Exception {
        switch (words[0]) {
            case "group" -> {
                try (var admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
                    var ops = Arrays.stream(words).skip(2).map(each -> each.split("=", 2))
                        .map(each -> new AlterConfigOp(new ConfigEntry(each[0], each[1]), AlterConfigOp.OpType.SET))
                        .collect(Collectors.toList());
                    var resource = new ConfigResource(ConfigResource.Type.GROUP, words[1]);
                    admin.incrementalAlterConfigs(Map.of(resource, ops)).all().get();
                }
                return "";
            }
            case "open" -> {
                Map<String, Object> settings = new HashMap<>(Map.of("bootstrap.servers", bootstrap, "group.id", words[2]));
                Arrays.stream(words).skip(4).map(each -> each.split("=", 2)).forEach(each -> settings.put(each[0], each[1]));
                var text = new StringDeserializer();
                var consumer = new KafkaShareConsumer<>(settings, text, text);
                consumer.subscribe(List.of(words[3]));
                consumers.put(words[1], consumer);
                return "";
            }
            case "poll" -> {
                return poll(words[1], Long.parseLong(words[2]));
            }
            case "take" -> {
                long end = System.currentTimeMillis() + Long.parseLong(words[3]);
                var found = new StringJoiner(" ");
                int count = 0;
                while (count < Integer.parseInt(words[2]) && System.currentTimeMillis() < end) {
                    String more = poll(words[1], 200);
                    if (!more.isEmpty()) {
                        found.add(more);
                        count += more.split(" ").length;
                    }
                }
                return found.toString();
            }
            case "ack" -> {
                var record = polled.get(words[1]).get(Long.parseLong(words[2]));
                consumers.get(words[1]).acknowledge(record, AcknowledgeType.valueOf(words[3]));
                return "";
            }
            case "commit" -> {
                return consumers.get(words[1]).commitSync(Duration.ofSeconds(20)).values().stream()
                    .map(each -> each.map(error -> error.getClass().getSimpleName()).orElse("none"))
                    .collect(Collectors.joining(" "));
            }
            case "close" -> {
                consumers.remove(words[1]).close(Duration.ofSeconds(20));
                return "";
            }
            default -> throw new IllegalArgumentException("unknown command " + words[0]);
        }
    }

    static String poll(String name, long millis) {
        Map<Long, ConsumerRecord<String, String>> records = new TreeMap<>();
        consumers.get(name).poll(Duration.ofMillis(millis)).forEach(each -> records.put(each.offset(), each));
        polled.put(name, records);
        return records.values().stream()
            .map(each -> each.partition() + ":" + each.offset() + ":" + each.value() + ":" + each.deliveryCount().orElse((short) -1))
            .collect(Collectors.joining(" "));
    }
}
